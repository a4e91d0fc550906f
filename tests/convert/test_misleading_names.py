"""Which tensors are the decoder's is what the audit finds in the config and the weights: a word in
their names that speaks of something else changes nothing, and lists of layers that nobody knows are
refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, T5Config, T5ForSequenceClassification

from conversions import load_whole, run
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.plan.request import HomeChoice

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
Tensors = dict[str, Any]
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9]])
# An embedding model's wrapper, a word that holds another, two names of towers, a draft's.
WORDS = ("encoder", "supervision", "vision_tower", "text_encoder.audio", "mtp")


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Path, Callable[[Tensors], Tensors]], Path]:
    """changed(folder, change) -> a copy of the model whose tensors are what `change` makes."""

    def make(folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
        target = Path(shutil.copytree(folder, tmp_path / "changed"))
        tensors = change(load_file(target / "model.safetensors"))
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
        return target

    return make


def under(word: str) -> Callable[[Tensors], Tensors]:
    """All tensors, with `word.` in front of their names."""
    return lambda tensors: {f"{word}.{name}": tensor for name, tensor in tensors.items()}


def beside(word: str, part: str) -> Callable[[Tensors], Tensors]:
    """All tensors, and those with `part` in their names once more with `word.` in front."""
    return lambda tensors: {
        **tensors,
        **{f"{word}.{name}": tensors[name].clone() for name in tensors if part in name},
    }


def assert_same_under(word: str, result: Path, expected: Path) -> None:
    one, other = (load_file(folder / "model.safetensors") for folder in (result, expected))
    assert set(one) == {f"{word}.{name}" for name in other}
    assert all(torch.equal(one[f"{word}.{name}"], other[name]) for name in other)


@pytest.mark.parametrize("word", WORDS)
def test_a_class_with_fewer_heads(
    grouped: MakeFolder, repeated: MakeFolder, changed: MakeFolder, tmp_path: Path, word: str
) -> None:
    original = grouped("llama", 12, 4)
    back = run(changed(repeated(original, 3), under(word)), tmp_path / "back", 4).target
    assert_same_under(word, back, original)
    result = load_whole(back, dtype=torch.float64, key_mapping={rf"^{word}\.": ""})
    with torch.no_grad():
        expected = load_whole(original, dtype=torch.float64)(TOKENS).logits
        assert torch.equal(result(TOKENS).logits, expected)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("model_type", "home"), [("bloom", "custom"), ("gpt_neox", "rehome")])
def test_a_class_of_our_own_and_another_class(
    build_model: Callable[..., Any],
    changed: MakeFolder,
    tmp_path: Path,
    model_type: str,
    home: HomeChoice,
    word: str,
) -> None:
    sizes = {"n_head": 6, "num_attention_heads": 6, "hidden_act": "gelu"}
    build_model(model_type, **sizes).save_pretrained(tmp_path / "plain")
    plain = run(tmp_path / "plain", tmp_path / "expected", 2, home=home).target
    moved = run(changed(tmp_path / "plain", under(word)), tmp_path / "out", 2, home=home).target
    if home == "custom":
        assert_same_under(word, moved, plain)
    else:  # the other class has names of its own
        name = "model.safetensors"
        assert (moved / name).read_bytes() == (plain / name).read_bytes()


@pytest.mark.parametrize(
    ("model_type", "part", "home", "words"),
    [
        ("llama", "layers.1.self_attn", "native", "a list of layers that is none of the config's"),
        ("bloom", "h.1.self_attention", "custom", "a list of layers that is none of the config's"),
        ("gpt_neox", "layers.1.attention", "rehome", "has no counterpart in phi"),
    ],
)
@pytest.mark.parametrize("word", ["draft", "encoder"])
def test_a_second_list_of_attention_is_refused(
    build_model: Callable[..., Any],
    changed: MakeFolder,
    tmp_path: Path,
    model_type: str,
    part: str,
    home: HomeChoice,
    words: str,
    word: str,
) -> None:
    """It may be a decoder that reads the same cache: it is neither merged nor taken along."""
    sizes = {"n_head": 6, "num_attention_heads": 6, "num_key_value_heads": 6, "hidden_act": "gelu"}
    build_model(model_type, **sizes).save_pretrained(tmp_path / "plain")
    source = changed(tmp_path / "plain", beside(word, part))
    with pytest.raises(CannotConvertError, match=words):
        run(source, tmp_path / "out", 2, home=home)


def test_an_encoder_that_is_called_as_the_decoder_of_another_type_stays(tmp_path: Path) -> None:
    """`transformer.encoder` is ChatGLM's decoder, and the encoder of this T5."""
    sizes = {
        "d_model": 48,
        "d_kv": 8,
        "num_heads": 6,
        "d_ff": 32,
        "num_layers": 2,
        "vocab_size": 96,
    }
    torch.manual_seed(0)
    model = T5ForSequenceClassification(T5Config(**sizes, decoder_start_token_id=0)).double().eval()
    for name, parameter in model.named_parameters():
        parameter.data.normal_(std=0.3)
        if ".decoder." in name and name.endswith((".k.weight", ".v.weight")):
            heads = parameter.data.unflatten(0, (2, 3, 8))  # each three alike
            parameter.data = heads[:, :1].expand_as(heads).reshape(48, 48).clone()
    model.save_pretrained(tmp_path / "t5")
    result = run(tmp_path / "t5", tmp_path / "out", 2).target
    one, other = (load_file(folder / "model.safetensors") for folder in (result, tmp_path / "t5"))
    encoder = [name for name in other if ".encoder." in name]
    assert encoder
    assert all(torch.equal(one[name], other[name]) for name in encoder)
    auto = AutoModelForSequenceClassification
    loaded = load_whole(result, auto, dtype=torch.float64, trust_remote_code=True)
    tokens = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 1]])
    with torch.no_grad():
        difference = (loaded(tokens).logits - model(tokens).logits).abs().max().item()
    assert difference <= 1e-10


def test_a_recurrent_layers_number_excuses_no_other_list(
    build_model: Callable[..., Any], changed: MakeFolder, tmp_path: Path
) -> None:
    """There attention-like names are the recurrent mixer's; in other lists they are not."""
    kinds = ["linear_attention", "full_attention"]
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 6, "layer_types": kinds}
    sizes |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
    build_model("qwen3_next", **sizes, linear_value_head_dim=8).save_pretrained(tmp_path / "plain")
    strange = {"extra.blocks.0.mixed_attention.gain": torch.ones(4)}
    source = changed(tmp_path / "plain", lambda tensors: tensors | strange)
    run(tmp_path / "plain", tmp_path / "fine", 2)
    with pytest.raises(CannotConvertError, match="looks like attention but is not known"):
        run(source, tmp_path / "out", 2)


def test_a_tower_beside_the_layers_goes_along(
    grouped: MakeFolder, changed: MakeFolder, tmp_path: Path
) -> None:
    source = changed(grouped("llama", 12, 4), beside("vision_tower", "layers.1.self_attn"))
    result = run(source, tmp_path / "out", 2).target
    one, other = (load_file(folder / "model.safetensors") for folder in (result, source))
    towers = [name for name in other if name.startswith("vision_tower")]
    assert towers
    assert all(torch.equal(one[name], other[name]) for name in towers)
