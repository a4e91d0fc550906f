"""What `--prune-heads` takes, what it refuses, and with what words."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.convert.plan.errors import CannotConvertError, HeadCountError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.pruning import parse_pruned_heads
from headcount.convert.plan.request import ConversionRequest, PrunedHeads
from headcount.model.errors import HeadcountError
from pruned_models import FAMILIES

pytestmark = pytest.mark.needs_convert


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 query heads of 4 K/V heads, in two layers."""
    family = next(f for f in FAMILIES if (f.heads, f.key_value_heads) == (12, 4))
    return family.build(tmp_path_factory.mktemp("twelve") / "model")


def request(source: Path, pruned: PrunedHeads, **options: object) -> ConversionRequest:
    wanted = {"num_key_value_heads": None, **options}
    return ConversionRequest(
        source=source, target=source.parent / "out", pruned_heads=pruned, **wanted
    )


@pytest.mark.parametrize(
    ("text", "pruned"),
    [
        ("2", 2),
        ("1/4", Fraction(1, 4)),
        ("0.25", Fraction(1, 4)),
        ("12.5%", Fraction(1, 8)),
        ("0-1:1+5,3:0", {0: (1, 5), 1: (1, 5), 3: (0,)}),
    ],
)
def test_a_number_a_share_or_heads_by_layer(text: str, pruned: PrunedHeads) -> None:
    assert parse_pruned_heads(text) == pruned


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1/0", "3/2", "0.0", "100%", "0:", "1-0:2", "0:1,0:2", "0:1+", "1e9"]
)
def test_text_that_names_no_heads_is_an_error(text: str) -> None:
    with pytest.raises(HeadcountError):
        parse_pruned_heads(text)


@given(st.text(alphabet="0123456789:+-,./% x", max_size=12))
def test_any_other_text_is_an_error_or_names_heads(text: str) -> None:
    try:
        found = parse_pruned_heads(text)
    except HeadcountError:
        return
    assert isinstance(found, int | Fraction) or all(map(len, found.values()))


@pytest.mark.parametrize(
    ("pruned", "words"),
    [
        (1, "as many have to stay of each K/V head that stays; --prune-heads can be 3, 4, 6, 8"),
        (12, "--prune-heads can be 3, 4, 6, 8, 9, 10, 11"),
        (Fraction(1, 5), r"1/5 \(2.4\) of them cannot go"),
        ({0: (1,)}, "3 query heads of K/V head 1 would stay and 2 of K/V head 0"),
        ({0: (12,)}, "has 12 query heads, no head 12"),
        ({2: (0,)}, "layer 2 has no heads of its own"),
        ({0: tuple(range(12))}, "would lose all of its 12 query heads"),
    ],
)
def test_heads_that_cannot_go(twelve: Path, pruned: PrunedHeads, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        plan_conversion(request(twelve, pruned))


def test_more_key_value_heads_than_stay_are_refused(twelve: Path) -> None:
    one = request(twelve, {0: (0, 1, 2), 1: (3, 4, 5)}, num_key_value_heads={0: 4, 1: 1})
    with pytest.raises(HeadCountError, match="leaves layer 0 3 K/V heads; 4 would be more"):
        plan_conversion(one)


def test_a_number_for_all_layers_is_an_upper_bound(twelve: Path) -> None:
    plan = plan_conversion(request(twelve, {0: (0, 1, 2), 1: (3, 4, 5)}, num_key_value_heads=4))
    assert [(layer.before, layer.after) for layer in plan.layers] == [(4, 3)] * 2


def test_a_text_that_chooses_nothing_is_refused(twelve: Path) -> None:
    with pytest.raises(HeadcountError, match="changes nothing about heads that are named"):
        plan_conversion(request(twelve, {0: (0, 1, 2), 1: (3, 4, 5)}, calibration="builtin"))


@pytest.mark.parametrize(
    ("pruned", "options", "words"),
    [
        (None, {"num_key_value_heads": 2}, "among the heads of all layers: add --prune-heads"),
        ({0: (0, 1, 2)}, {"calibration": "builtin"}, "with a number or a share of them"),
        (6, {}, "which weights alone do not tell: add --calibration FILE"),
        (1, {"calibration": "builtin"}, "of the 24 query heads of all layers 1 cannot go: at least"
         " 3, and at most 22"),
        (23, {"calibration": "builtin"}, "23 cannot go"),
    ],
)  # fmt: skip
def test_heads_that_cannot_go_from_all_layers(
    twelve: Path, pruned: PrunedHeads, options: dict[str, object], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        plan_conversion(request(twelve, pruned, across_layers=True, **options))


def test_a_class_that_cannot_hold_it_is_refused_by_name(twelve: Path) -> None:
    with pytest.raises(CannotConvertError, match="cannot hold what pruning leaves"):
        plan_conversion(request(twelve, 3, home="native"))


def test_nothing_asked_for_is_refused(twelve: Path) -> None:
    with pytest.raises(HeadcountError, match="nothing is asked for"):
        ConversionRequest(source=twelve, target=twelve.parent / "out", num_key_value_heads=None)


def test_the_weakest_by_weights_go_where_there_is_no_text(twelve: Path) -> None:
    """3 of 12: a whole group, or none could go."""
    plan = plan_conversion(request(twelve, 3))
    assert plan.importance is not None and plan.importance.criterion == "weights"
    for layer in plan.layers:
        (group,) = {head // 3 for head in layer.pruned}
        scores = plan.importance.scores[layer.index]
        sums = [sum(scores[j * 3 : j * 3 + 3]) for j in range(4)]
        assert min(sums) == sums[group]
        assert (layer.before, layer.after, layer.query_heads) == (4, 3, 9)
