"""Maps of layers and heads: one colour a role, darker the more a head follows it."""

from collections.abc import Sequence
from typing import NamedTuple

from headcount.report.report import HeatCell, HeatMap

from .atlas import AttentionAtlas, Head
from .roles import LETTERS, NO_ROLE, ROLE_NAMES

GONE = "x"
HUES = {role: hue for hue, role in enumerate(LETTERS)}
_MEANINGS = {
    "induction": "share of attention on what followed the same token before",
    "duplicate_token": "share of attention on the same token before",
    "previous_token": "share of attention on the token before",
    "alignment": "how steadily it moves on with the tokens, from -1 to 1",
    "first_token": "share of attention on the first token",
}


class MapRow(NamedTuple):
    """The heads of one attention; None for one that is gone."""

    name: str
    heads: Sequence[Head | None]


def attention_name(one: AttentionAtlas) -> str:
    return f"{one.attention.layer}{' cross' if one.attention.is_cross else ''}"


def role_map(
    key: str, title: str, rows: Sequence[MapRow], *, in_text: bool = False, beside: bool = False
) -> HeatMap:
    """The first role of every head, in its colour. One that stands `beside` another is explained
    there."""
    heads = [head for row in rows for head in row.heads]
    used = {role for head in heads if head for role in head.roles}
    legend = (
        *letters_in_words(used),
        ("+", "and it copies what it reads", None),
        (NO_ROLE, "none of these", None),
    )
    return HeatMap(
        key=key,
        title=title,
        row_title="Layer",
        rows=tuple(row.name for row in rows),
        cells=tuple(tuple(map(_role_cell, row.heads)) for row in rows),
        legend=() if beside else legend,
        in_text=in_text,
        beside=beside,
    )


def letters_in_words(used: set[str]) -> tuple[tuple[str, str, int | None], ...]:
    """A legend of the roles that are `used`."""
    return tuple((LETTERS[r], ROLE_NAMES[r], HUES[r]) for r in LETTERS if r in used)


def _role_cell(head: Head | None) -> HeatCell:
    if head is None or not head.roles:
        return HeatCell(text=GONE if head is None else NO_ROLE, share=0.0)
    role = head.roles[0]
    text = LETTERS[role] + ("+" if head.copies else "")
    return HeatCell(text=text, share=getattr(head.scores, role), hue=HUES[role])


def score_title(role: str) -> str:
    """What a map of a role's score is called, and what the score is."""
    return f"{ROLE_NAMES[role].capitalize()}: {_MEANINGS[role]}"


def score_meanings() -> str:
    """What the score of every role is, in a sentence."""
    return "; ".join(f"{ROLE_NAMES[role]}, {meaning}" for role, meaning in _MEANINGS.items())


def is_told(row: MapRow, role: str) -> bool:
    """Whether the patterns of an attention can show a role."""
    return any(head and getattr(head.scores, role) is not None for head in row.heads)


def score_map(
    key: str, title: str, rows: Sequence[MapRow], role: str, *, beside: bool = False
) -> HeatMap:
    """The score of a role of every head, in hundredths."""
    return HeatMap(
        key=key,
        title=title,
        row_title="Layer",
        rows=tuple(row.name for row in rows),
        cells=tuple(tuple(_score_cell(head, role) for head in row.heads) for row in rows),
        beside=beside,
    )


def _score_cell(head: Head | None, role: str) -> HeatCell:
    score = getattr(head.scores, role) if head else None
    if score is None:
        return HeatCell(text="" if head else GONE, share=0.0)
    return HeatCell(text=f"{100 * score:.0f}", share=max(0.0, score), hue=HUES[role])
