"""Whose a list of layers is: by what the lists hold, not by the words of their names alone."""

import pytest

from headcount.arch.tensors.names import LLAMA_NAMES
from headcount.arch.tensors.places import numbered
from headcount.arch.tensors.stacks import Stacks, find_stacks
from headcount.model.spec import Layer

INSIDE = ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "mlp.up_proj.weight")


def stacks(*prefixes: str, others: str | None = None) -> Stacks:
    """What is found in a file of lists of two layers each, for a config of one decoder of two."""
    names = [f"{prefix}.{i}.{inside}" for prefix in prefixes for i in (0, 1) for inside in INSIDE]
    lists = [at for at in map(numbered, names) if at is not None]
    layers = [Layer(index=i, mixers=()) for i in (0, 1)]
    return find_stacks(lists, {"decoder": LLAMA_NAMES}, layers, others=others)


@pytest.mark.parametrize("prefix", ["model.layers", "encoder.layers", "vision.h", "mtp.layers"])
def test_the_only_list_is_the_configs_whatever_it_is_called(prefix: str) -> None:
    assert stacks(prefix).owner(prefix) == "decoder"


@pytest.mark.parametrize(
    ("prefix", "owner"),
    [
        ("vision_tower.encoder.layers", "vision"),
        ("qformer.encoder.layer", "encoder"),
        ("text_encoder.layers", "encoder"),
        ("mtp.layers", "mtp"),
        ("model.expert.layers", None),
    ],
)
def test_a_list_of_another_model_has_a_word_that_says_so(prefix: str, owner: str | None) -> None:
    found = stacks("model.language_model.layers", prefix, others="vision")
    assert found.owner("model.language_model.layers") == "decoder"
    assert found.owner(prefix) == owner


def test_an_encoders_word_in_front_of_a_text_model_says_nothing() -> None:
    found = stacks("model.text_model.layers", "encoder.text_model.layers", others="vision")
    assert found.owner("model.text_model.layers") == "decoder"
    assert found.owner("encoder.text_model.layers") is None


@pytest.mark.parametrize("prefix", ["t2u_model.model.decoder.layers", "vision_tower.blocks"])
def test_a_tower_needs_no_config_of_its_own(prefix: str) -> None:
    assert stacks("text_decoder.layers", prefix).owner(prefix) in ("audio", "vision")


def test_a_config_of_one_model_has_no_encoder_beside_it() -> None:
    assert stacks("model.layers", "encoder.model.layers").owner("encoder.model.layers") is None


def test_a_word_that_the_decoder_has_too_says_nothing() -> None:
    found = stacks("vision_lm.layers", "vision_lm.more.layers")
    assert found.owner("vision_lm.layers") == "decoder"
    assert found.owner("vision_lm.more.layers") is None
