"""An atlas as JSON (docs/heads.md has the schema), and as rows of CSV."""

from dataclasses import asdict
from typing import Any

from headcount.report.report import Column, Table

from .atlas import Atlas, AttentionAtlas, Head, HeadScores
from .roles import LETTERS

SCHEMA_VERSION = 1
_SCORES = tuple(HeadScores.__slots__)


def atlas_document(atlas: Atlas) -> dict[str, Any]:
    """Stable keys, raw numbers, null for what cannot be told."""
    settings = asdict(atlas.settings)
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {"id": atlas.id, "model_type": atlas.model_type},
        "layers": [_attention(one) for one in atlas.attentions],
        "roles": {role: _places(atlas, role) for role in LETTERS},
        "cost": asdict(atlas.cost),
        "settings": {**settings, "thresholds": atlas.settings.thresholds._asdict()},
        "warnings": list(atlas.warnings),
    }


def _places(atlas: Atlas, role: str) -> list[list[int]]:
    """[layer, head] of every head with the role."""
    return [[one.attention.layer, head.head] for one, head in atlas.heads() if role in head.roles]


def _attention(one: AttentionAtlas) -> dict[str, Any]:
    attention = one.attention
    return {
        "index": attention.layer,
        "kind": attention.mixer.kind,
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "group_size": attention.group_size,
        "module": one.path,
        "uniform": one.uniform,
        "heads": [_head(head) for head in one.heads],
        "key_value_heads": [
            {**asdict(each), **{key: list(getattr(each, key)) for key in _LISTS}}
            for each in one.key_value_heads
        ],
    }


_LISTS = ("query_heads", "induction_heads")


def _head(head: Head) -> dict[str, Any]:
    return {
        "head": head.head,
        "key_value_head": head.key_value_head,
        "roles": list(head.roles),
        "copies": head.copies,
        "scores": asdict(head.scores),
    }


def head_records(atlas: Atlas) -> Table:
    """A row a head."""
    names = ("layer", "kind", "head", "key_value_head", "roles", "copies", *_SCORES)
    return Table(
        key="heads",
        title="Heads",
        columns=tuple(Column(key=name, title=name) for name in names),
        rows=tuple(_record(one, head) for one, head in atlas.heads()),
    )


def _record(one: AttentionAtlas, head: Head) -> tuple[object, ...]:
    return (
        one.attention.layer,
        one.attention.mixer.kind,
        head.head,
        head.key_value_head,
        " ".join(head.roles),
        head.copies,
        *(getattr(head.scores, name) for name in _SCORES),
    )
