"""Which head of the source stands where, as a record says it: worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.convert.plan.heads import Heads
from headcount.heads.comparison.moved_heads import origins_of, read_moved_heads
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert


def heads(query: int, before: int, after: int, **more: Any) -> Heads:
    return Heads(num_attention_heads=query, before=before, after=after, head_dim=8, **more)


@pytest.mark.parametrize(
    ("own", "order", "places"),
    [
        (heads(4, 4, 2), (), (0, 1, 2, 3)),
        # K/V heads 0 and 2, 1 and 3 become one: their query heads follow, one and two of each
        (heads(4, 4, 2), (0, 2, 1, 3), (0, 2, 1, 3)),
        (heads(8, 4, 2), (0, 3, 1, 2), (0, 1, 6, 7, 2, 3, 4, 5)),
        # 3 K/V heads become 2: the run of one gets a query head of zeros
        (heads(3, 3, 2), (), (0, 1, 2, None)),
        (heads(3, 3, 2), (0, 2, 1), (0, 2, 1, None)),
        # of six heads 1 and 4 go; order counts those that stay
        (heads(6, 6, 4, kept=(0, 2, 3, 5)), (), (0, 2, 3, 5)),
        (heads(6, 6, 2, kept=(0, 2, 3, 5)), (0, 3, 1, 2), (0, 5, 2, 3)),
        # a whole group of two goes, and the others change places
        (heads(6, 3, 2, kept=(0, 1, 4, 5)), (1, 0), (4, 5, 0, 1)),
    ],
)
def test_every_place_has_the_head_that_moved_there(
    own: Heads, order: tuple[int, ...], places: tuple[int | None, ...]
) -> None:
    assert origins_of(own, order) == places


def test_an_order_that_names_a_head_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="order"):
        origins_of(heads(4, 4, 2), (0, 0, 1, 2))


def record(**layer: Any) -> dict[str, Any]:
    counts = {"before": 4, "after": 2}
    entry = {"index": 1, "num_attention_heads": 4, "head_dim": 8, "num_key_value_heads": counts}
    entry |= {"padded_attention_heads": None, "pruned_attention_heads": [], "rewritten": None}
    return {"source": {"name": "mha", "fingerprint": "sha256:1"}, "layers": [{**entry, **layer}]}


def test_a_record_is_read(tmp_path: Path) -> None:
    assert read_moved_heads(tmp_path) is None
    rewritten = {"attention": {"order": [0, 2, 1, 3], "groups": [2, 2]}}
    (tmp_path / "conversion.json").write_text(json.dumps(record(rewritten=rewritten)))
    found = read_moved_heads(tmp_path)
    assert found is not None and found.is_moved
    assert (found.source, found.source_name) == ("sha256:1", "mha")
    assert found.origins == {(1, False): (0, 2, 1, 3)} and found.before == {(1, False): (4, 4)}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {**record(), "source": None},
        {**record(), "layers": [1]},
        record(num_key_value_heads={"before": 4, "after": 0}),
        record(pruned_attention_heads=["0"]),
        record(rewritten={"attention": {"order": [0, 0, 1, 2]}}),
        record(rewritten={"attention": {"order": "abcd"}}),
        record(num_attention_heads="4"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / "conversion.json").write_text(json.dumps(content))
    with pytest.raises(HeadcountError, match=r"conversion\.json"):
        read_moved_heads(tmp_path)
