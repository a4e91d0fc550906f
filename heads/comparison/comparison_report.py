"""A comparison of heads as people read it: the verdict, what became of each role, and where."""

from collections.abc import Iterator, Sequence

from headcount.report.report import Column, Fact, HeatCell, HeatMap, Report, Table

from ..atlas_maps import (
    GONE,
    HUES,
    MapRow,
    attention_name,
    is_told,
    letters_in_words,
    role_map,
    score_map,
    score_meanings,
)
from ..atlas_report import thresholds_note, tokens_fact
from ..roles import LETTERS, NO_ROLE, ROLE_NAMES, counted_letters
from .comparison import AtlasComparison, AttentionChange, HeadChange
from .comparison_document import change_records, comparison_document

_BRIEF_ROWS = 8  # that a terminal shows without --details
_ROLES = (
    Column(key="role", title="Role"),
    Column(key="verdict", title="Verdict", unit="verdict"),
    Column(key="had", title="Heads before", unit="count"),
    Column(key="kept", title="Kept", unit="count"),
    Column(key="lost", title="Lost", unit="count"),
    Column(key="gone", title="Gone", unit="count"),
    Column(key="gained", title="Gained", unit="count"),
    Column(key="score_before", title="Score before", unit="share"),
    Column(key="score_after", title="Now", unit="share"),
)
_LAYERS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="heads", title="Heads"),
    Column(key="key_value_heads", title="K/V heads"),
    Column(key="roles_before", title="Roles before"),
    Column(key="roles_after", title="Now"),
    Column(key="lost", title="Lost", unit="count"),
    Column(key="gained", title="Gained", unit="count"),
    Column(key="similarity", title="Alike in a group", unit="similarity"),
)
_MERGED = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="key_value_head", title="K/V head", unit="count"),
    Column(key="merged", title="Of K/V heads"),
    Column(key="heads", title="Query heads before"),
    Column(key="roles_before", title="Roles before"),
    Column(key="roles_after", title="Now"),
    Column(key="similarity", title="Alike", unit="similarity"),
)
_CHANGED = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="head_before", title="Head before", unit="count"),
    Column(key="head_after", title="Now", unit="count"),
    Column(key="role", title="Role"),
    Column(key="change", title="Change"),
    Column(key="score_before", title="Score before", unit="share"),
    Column(key="score_after", title="Now", unit="share"),
    Column(key="copying_before", title="Copying before", unit="share"),
    Column(key="copying_after", title="Now", unit="share"),
)


def comparison_report(found: AtlasComparison) -> Report:
    """The whole report."""
    return Report(
        title=f"Heads of {found.after.id} against {found.before.id}",
        facts=tuple(_facts(found)),
        heat_maps=tuple(_maps(found)),
        tables=tuple(_tables(found)),
        notes=(*_notes(found), *found.warnings),
        document=comparison_document(found),
        records=change_records(found),
    )


def verdict_facts(
    found: AtlasComparison, title: str = "Verdict", key: str = "verdict"
) -> Iterator[Fact]:
    """What became of the roles, in a line or two, the first of this title and key."""
    had, kept = (sum(getattr(one, name) for one in found.roles) for name in ("had", "kept"))
    parts = [f"{had - kept:,} lost", f"{sum(one.gained for one in found.roles):,} gained"]
    gone = found.gone
    if gone:
        parts.append(f"{gone:,} head{'s' if gone > 1 else ''} gone")
    value = f"{kept:,} of {had:,} roles kept" if had else "no head had a role"
    yield Fact(key=key, title=title, value=value, note=", ".join(parts))
    induction = next((one for one in found.roles if one.role == "induction" and one.had), None)
    if induction is not None:
        yield Fact(
            key="induction_kept",
            title="Induction heads",
            value=f"{induction.kept:,} of {induction.had:,} kept",
            note=f"mean score {induction.score_before:.2f} before, {induction.score_after:.2f} now",
        )


def roles_table(found: AtlasComparison, title: str = "Roles") -> Table:
    """A row a role."""
    keys = [column.key for column in _ROLES[1:]]
    return Table(
        key="roles",
        title=title,
        columns=_ROLES,
        rows=tuple(
            (ROLE_NAMES[one.role], *(getattr(one, key) for key in keys)) for one in found.roles
        ),
    )


def _facts(found: AtlasComparison) -> Iterator[Fact]:
    yield from verdict_facts(found)
    yield tokens_fact(found.after.settings)
    yield Fact(key="matched_by", title="Heads matched by", value=found.matched_by)
    costs = (found.before.cost, found.after.cost)
    settings = found.after.settings
    yield Fact(
        key="cost",
        title="Cost",
        value=f"{sum(cost.forward_passes for cost in costs):,} forward passes",
        note=f"{sum(cost.tokens for cost in costs):,} tokens,"
        f" {sum(cost.seconds for cost in costs):.1f} s on {settings.device}, {settings.dtype}",
    )


def _tables(found: AtlasComparison) -> Iterator[Table]:
    """Those that have something to say."""
    if found.roles:
        yield roles_table(found)
    yield Table(
        key="layers",
        title="Layers",
        columns=_LAYERS,
        rows=tuple(_layer_row(one) for one in found.attentions),
        brief=0,
    )
    merged = tuple(_merged_rows(found))
    if merged:
        title = "K/V heads whose query heads changed roles"
        yield Table(key="merged", title=title, columns=_MERGED, rows=merged, brief=0)
    changed = tuple(_changed_rows(found))
    if changed:
        title = "Heads that lost or gained a role"
        yield Table(key="changed", title=title, columns=_CHANGED, rows=changed, brief=_BRIEF_ROWS)


def _layer(one: AttentionChange) -> object:
    attention = one.after.attention
    return attention_name(one.after) if attention.is_cross else attention.layer


def _layer_row(one: AttentionChange) -> tuple[object, ...]:
    before, after = one.before.attention, one.after.attention
    alike = [each.similarity for each in one.key_value_heads if each.similarity is not None]
    return (
        _layer(one),
        _moved(before.num_attention_heads, after.num_attention_heads),
        _moved(before.num_key_value_heads, after.num_key_value_heads),
        counted_letters(head.roles_before for head in one.heads),
        counted_letters(head.roles_after for head in one.heads),
        sum(len(head.lost) for head in one.heads),
        sum(len(head.gained) for head in one.heads),
        sum(alike) / len(alike) if alike else None,
    )


def _moved(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _merged_rows(found: AtlasComparison) -> Iterator[tuple[object, ...]]:
    """K/V heads of several, where a query head of theirs changed."""
    for one in found.attentions:
        for each in one.key_value_heads:
            if len(each.merged) > 1 and any(head.is_changed for head in each.heads):
                yield (
                    _layer(one),
                    each.key_value_head,
                    ", ".join(map(str, each.merged)),
                    ", ".join(str(head.before.head) for head in each.heads if head.before),
                    counted_letters(head.roles_before for head in each.heads),
                    counted_letters(head.roles_after for head in each.heads),
                    each.similarity,
                )


def _changed_rows(found: AtlasComparison) -> Iterator[tuple[object, ...]]:
    """A row a role that a head lost or gained; what is lost first, and the first roles first."""
    listed = [
        (change, role, one, head)
        for one, head in found.heads()
        for change, roles in (("lost", head.lost), ("gained", head.gained))
        for role in roles
    ]
    order = list(LETTERS)
    listed.sort(key=lambda row: (row[0] == "gained", order.index(row[1])))
    for change, role, one, head in listed:
        sides = (head.before, head.after)
        yield (
            _layer(one),
            *(side and side.head for side in sides),
            ROLE_NAMES[role],
            "gone" if head.after is None else change,
            *(side and getattr(side.scores, role) for side in sides),
            *(side and side.scores.copying for side in sides),
        )


def _maps(found: AtlasComparison) -> Iterator[HeatMap]:
    """What became of each head, and for a page the roles and scores before and now beside each
    other. Every map has the heads where they were before."""
    yield _change_map(found)
    before, after = (
        [
            MapRow(attention_name(one.before), [getattr(head, when) for head in one.heads])
            for one in found.attentions
        ]
        for when in ("before", "after")
    )
    yield role_map("roles_before", f"Roles before: {found.before.id}", before)
    yield role_map("roles_after", f"Now: {found.after.id}", after, beside=True)
    for role in LETTERS:
        told = [
            place
            for place, rows in enumerate(zip(before, after, strict=True))
            if any(is_told(row, role) for row in rows)
        ]
        if told:
            own, now = ([rows[place] for place in told] for rows in (before, after))
            name = ROLE_NAMES[role].capitalize()
            yield score_map(f"{role}_before", f"{name} before", own, role)
            yield score_map(f"{role}_after", f"{name} now", now, role, beside=True)


def _change_map(found: AtlasComparison) -> HeatMap:
    moved = any(head.is_changed for _, head in found.heads())
    used = {role for _, head in found.heads() for role in (*head.roles_before, *head.roles_after)}
    gone = ((GONE, "gone", None),) if found.gone else ()
    return HeatMap(
        key="changes",
        title="What became of each head, at its place before",
        row_title="Layer",
        rows=tuple(attention_name(one.after) for one in found.attentions),
        cells=tuple(tuple(_change_cells(one.heads)) for one in found.attentions),
        legend=(
            *letters_in_words(used),
            *((("I>P", "before and now, where the first role changed", None),) if moved else ()),
            (NO_ROLE, "no role", None),
            *gone,
        ),
        in_text=True,
    )


def _change_cells(heads: Sequence[HeadChange]) -> Iterator[HeatCell]:
    for head in heads:
        was, now = (roles[0] if roles else None for roles in (head.roles_before, head.roles_after))
        letters = [NO_ROLE if role is None else LETTERS[role] for role in (was, now)]
        if head.after is None:
            letters = [*letters[: 1 if was else 0], GONE]
        text = ">".join(dict.fromkeys(letters))
        hue = HUES[was] if was else HUES[now] if now else None
        # What is kept is pale, what changed is dark: that is what the map is looked at for.
        share = 0.0 if hue is None else 0.25 if was == now else 1.0
        yield HeatCell(text=text, share=share, hue=hue)


def _notes(found: AtlasComparison) -> Iterator[str]:
    yield thresholds_note(found.after)
    yield (
        "Score: the mean over the heads that had the role before, of attention to what it looks"
        " for; a head that is gone gives nothing."
    )
    yield f"Maps of scores, on a page, are in hundredths: {score_meanings()}."
