"""A comparison of heads as JSON (docs/roles-kept.md has the schema), and as rows of CSV."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headcount.report.report import Column, Table

from ..atlas import Atlas, HeadScores
from .comparison import AtlasComparison, AttentionChange, HeadChange, KeyValueChange, RoleChange

SCHEMA_VERSION = 1
_SCORES = tuple(HeadScores.__slots__)
_HEAD_COLUMNS = (
    *("layer", "kind", "head_before", "head_after", "key_value_head_before"),
    *("key_value_head_after", "roles_before", "roles_after", "lost", "gained"),
    *("copies_before", "copies_after"),
    *(f"{score}_{when}" for score in _SCORES for when in ("before", "after")),
)


def comparison_document(found: AtlasComparison) -> dict[str, Any]:
    """Stable keys, raw numbers, null for what one of the two does not have."""
    return {
        **comparison_summary(found),
        "layers": [_attention(one) for one in found.attentions],
        "warnings": list(found.warnings),
    }


def comparison_summary(found: AtlasComparison) -> dict[str, Any]:
    """The same without what is said of each layer and head."""
    settings = asdict(found.after.settings)
    thresholds = found.after.settings.thresholds._asdict()
    return {
        "schema_version": SCHEMA_VERSION,
        "model": _model(found.after),
        "against": _model(found.before),
        "matched_by": found.matched_by,
        "roles": {one.role: _role(one) for one in found.roles},
        "heads": {
            "before": sum(head.before is not None for _, head in found.heads()),
            "after": sum(head.after is not None for _, head in found.heads()),
            "gone": found.gone,
        },
        "cost": {"model": asdict(found.after.cost), "against": asdict(found.before.cost)},
        "settings": {**settings, "thresholds": thresholds},
    }


def _model(atlas: Atlas) -> dict[str, Any]:
    return {"id": atlas.id, "model_type": atlas.model_type}


def _role(one: RoleChange) -> dict[str, Any]:
    return {
        "had": one.had,
        "kept": one.kept,
        "lost": one.lost,
        "gone": one.gone,
        "gained": one.gained,
        "verdict": one.verdict,
        "score": {"before": one.score_before, "after": one.score_after},
    }


def _attention(one: AttentionChange) -> dict[str, Any]:
    before, after = one.before.attention, one.after.attention
    counts = ("num_attention_heads", "num_key_value_heads", "group_size")
    return {
        "index": after.layer,
        "kind": after.mixer.kind,
        **{
            name: {"before": getattr(before, name), "after": getattr(after, name)}
            for name in counts
        },
        "padding": one.padding,
        "heads": [_head(head) for head in one.heads],
        "key_value_heads": [_key_value_head(each) for each in one.key_value_heads],
    }


def _head(change: HeadChange) -> dict[str, Any]:
    sides = {"before": change.before, "after": change.after}

    def both(name: str) -> dict[str, Any]:
        return {when: head and getattr(head, name) for when, head in sides.items()}

    return {
        "head": both("head"),
        "key_value_head": both("key_value_head"),
        "roles": {"before": list(change.roles_before), "after": list(change.roles_after)},
        "lost": list(change.lost),
        "gained": list(change.gained),
        "copies": both("copies"),
        "scores": {when: head and asdict(head.scores) for when, head in sides.items()},
    }


def _key_value_head(one: KeyValueChange) -> dict[str, Any]:
    return {
        "key_value_head": one.key_value_head,
        "merged": list(one.merged),
        "query_heads": [change.after.head for change in one.heads if change.after],
        "lost": sum(len(change.lost) for change in one.heads),
        "gained": sum(len(change.gained) for change in one.heads),
        "similarity": one.similarity,
    }


def change_records(found: AtlasComparison) -> Table:
    """A row a head."""
    return Table(
        key="heads",
        title="Heads",
        columns=tuple(Column(key=name, title=name) for name in _HEAD_COLUMNS),
        rows=tuple(tuple(_record(one, change)) for one, change in found.heads()),
    )


def _record(one: AttentionChange, change: HeadChange) -> Iterator[object]:
    sides = (change.before, change.after)
    yield from (one.after.attention.layer, one.after.attention.mixer.kind)
    for name in ("head", "key_value_head"):
        yield from (head and getattr(head, name) for head in sides)
    for roles in (change.roles_before, change.roles_after, change.lost, change.gained):
        yield " ".join(roles)
    yield from (head and head.copies for head in sides)
    for score in _SCORES:
        yield from (head and getattr(head.scores, score) for head in sides)
