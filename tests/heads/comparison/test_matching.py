"""Which head of one model is which of another, and what is refused for want of knowing."""

from collections.abc import Sequence
from typing import Any

import pytest

from headcount.heads.attentions import DecoderAttention
from headcount.heads.comparison.matching import Candidate, IncomparableHeadsError, match_heads
from headcount.heads.comparison.moved_heads import MovedHeads
from headcount.model.mixers import Attention

pytestmark = pytest.mark.needs_convert


def model(
    name: str, heads: Sequence[int] = (4,), moved: MovedHeads | None = None, **more: Any
) -> Candidate:
    kv = more.pop("kv", 2)
    attentions = tuple(
        DecoderAttention(
            layer=layer,
            mixer=Attention(
                hidden_size=32,
                num_attention_heads=count,
                num_key_value_heads=kv,
                head_dim=8,
                v_head_dim=8,
            ),
        )
        for layer, count in enumerate(heads)
    )
    print_of = {"fingerprint": name, "readers": {}, **more}
    return Candidate(name=name, attentions=attentions, moved=moved, **print_of)


def made(source: str, *places: int | None, before: tuple[int, int] = (4, 4)) -> MovedHeads:
    return MovedHeads(
        source=source,
        source_name=source,
        origins={(0, False): places},
        before={(0, False): before},
    )


def test_a_conversion_against_its_source_goes_by_its_record() -> None:
    found = match_heads(model("gqa", moved=made("mha", 0, 2, 1, 3)), model("mha", kv=4))
    assert (found.model, found.against) == (((0, 2, 1, 3),), ((0, 1, 2, 3),))
    assert found.warnings == () and "conversion.json of gqa" in found.by


def test_the_source_against_its_conversion_is_said() -> None:
    found = match_heads(model("mha", kv=4), model("gqa", moved=made("mha", 0, 2, 1, 3)))
    assert (found.model, found.against) == (((0, 1, 2, 3),), ((0, 2, 1, 3),))
    assert "turn the two around" in found.warnings[0]


def test_two_conversions_of_one_model_go_by_both_records() -> None:
    """Also where config and tensors are of one shape, so that both have one fingerprint."""
    one = model("good", moved=made("mha", 0, 2, 1, 3), fingerprint="same")
    other = model("fast", moved=made("mha", 0, 3, 1, 2), fingerprint="same")
    found = match_heads(one, other)
    assert (found.model, found.against) == (((0, 2, 1, 3),), ((0, 3, 1, 2),))


def test_a_model_like_the_source_is_taken_for_it_with_a_warning() -> None:
    found = match_heads(model("gqa", moved=made("mha", 0, 2, 1, 3)), model("tuned", kv=4))
    assert found.model == ((0, 2, 1, 3),) and "are not those of tuned" in found.warnings[0]


def test_a_layer_that_reads_another_s_cache_goes_by_the_record_of_that() -> None:
    one = model("gqa", (4, 4, 4), moved=made("mha", 0, 2, 1, 3), readers={2: 0})
    found = match_heads(one, model("mha", (4, 4, 4), kv=4))
    assert found.model == ((0, 2, 1, 3), (0, 1, 2, 3), (0, 2, 1, 3))


def test_models_without_records_go_by_number() -> None:
    found = match_heads(model("one"), model("other"))
    assert found.by == "their numbers" and found.model == found.against == ((0, 1, 2, 3),)


def test_a_conversion_that_lost_its_record_in_training_goes_by_number() -> None:
    one = model("gqa", moved=made("mha", 0, 2, 1, 3), fingerprint="same")
    found = match_heads(one, model("tuned", fingerprint="same"))
    assert found.model == ((0, 1, 2, 3),) and "by their numbers" in found.warnings[0]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (model("a", (4, 4)), model("b", (4,)), "a has 2 attentions in its decoder, b 1"),
        (model("a", (6,)), model("b", (4,)), "6 query heads in a, 4 in b, and no conversion.json"),
        (model("a", moved=made("m", 0, 2, 1, 3)), model("b"), "its heads changed places"),
        (
            model("a", (6,), moved=made("b", 0, 2, 1, 3)),
            model("b", kv=4),
            "it is not the record of this model",
        ),
    ],
)
def test_heads_that_cannot_be_told_apart_are_refused(
    one: Candidate, other: Candidate, words: str
) -> None:
    with pytest.raises(IncomparableHeadsError, match=words):
        match_heads(one, other)
