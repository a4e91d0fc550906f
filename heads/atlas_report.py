"""An atlas as people read it: a map of roles, the heads that have one, and the layers."""

from collections.abc import Iterator

from headcount.report.report import Column, Fact, HeatCell, HeatMap, Report, Table

from .atlas import Atlas, AttentionAtlas, Head
from .atlas_document import atlas_document, head_records
from .roles import LETTERS

_NAMES = {
    "induction": "induction",
    "duplicate_token": "duplicate token",
    "previous_token": "previous token",
    "alignment": "alignment",
    "first_token": "first token",
}
_NONE = "·"
_HEADS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="head", title="Head", unit="count"),
    Column(key="key_value_head", title="K/V head", unit="count"),
    Column(key="role", title="Role"),
    Column(key="score", title="Score", unit="share"),
    Column(key="uniform", title="Uniform", unit="share"),
    Column(key="copying", title="Copying", unit="share"),
    Column(key="offset", title="Offset", unit="count"),
    Column(key="distance", title="Distance", unit="mean_tokens"),
    Column(key="span", title="Span", unit="mean_tokens"),
)
_LAYERS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="heads", title="Heads", unit="count"),
    Column(key="key_value_heads", title="K/V heads", unit="count"),
    Column(key="roles", title="Roles"),
    Column(key="similarity", title="Alike in a group", unit="similarity"),
    Column(key="induction", title="K/V heads with induction"),
    Column(key="entropy", title="Entropy", unit="share"),
    Column(key="span", title="Span", unit="mean_tokens"),
)


def atlas_report(atlas: Atlas) -> Report:
    """The whole report of one atlas."""
    rows = tuple(_head_row(one, head) for one, head in atlas.heads() if head.roles)
    found = Table(key="roles", title="Heads with a role", columns=_HEADS, rows=rows)
    layers = Table(
        key="layers",
        title="Layers",
        columns=_LAYERS,
        rows=tuple(_layer_row(one) for one in atlas.attentions),
    )
    return Report(
        title=f"Heads of {atlas.id}",
        facts=tuple(_facts(atlas)),
        heat_maps=(_role_map(atlas), *_score_maps(atlas)),
        tables=(*((found,) if rows else ()), layers),
        notes=(*_notes(atlas), *atlas.warnings),
        document=atlas_document(atlas),
        records=head_records(atlas),
    )


def _facts(atlas: Atlas) -> Iterator[Fact]:
    settings, cost = atlas.settings, atlas.cost
    begin = "" if settings.start_id is None else f" behind token {settings.start_id}"
    yield Fact(
        key="tokens",
        title="Tokens",
        value=f"{settings.tokens} random tokens{begin}, and the same once more",
        note=f"{settings.sequences} sequences, seed {settings.seed}",
    )
    heads = [head for _, head in atlas.heads()]
    with_role = sum(bool(head.roles) for head in heads)
    note = f"{with_role:,} with a role"
    yield Fact(key="heads", title="Heads", value=len(heads), unit="count", note=note)
    yield Fact(
        key="cost",
        title="Cost",
        value=f"{cost.forward_passes:,} forward passes",  # never one: the last is for norms
        note=f"{cost.tokens:,} tokens, {cost.seconds:.1f} s on {settings.device}, {settings.dtype}",
    )


def _name(one: AttentionAtlas) -> str:
    return f"{one.attention.layer}{' cross' if one.attention.is_cross else ''}"


def _head_row(one: AttentionAtlas, head: Head) -> tuple[object, ...]:
    scores, role = head.scores, head.roles[0]
    return (
        _name(one) if one.attention.is_cross else one.attention.layer,
        head.head,
        head.key_value_head,
        ", ".join(_NAMES[each] for each in head.roles),
        getattr(scores, role),
        one.uniform.get(role, 0.0),
        scores.copying,
        scores.offset,
        scores.distance,
        scores.span,
    )


def _layer_row(one: AttentionAtlas) -> tuple[object, ...]:
    count = len(one.heads)
    alike = [each.similarity for each in one.key_value_heads if each.similarity is not None]
    induction = [str(e.key_value_head) for e in one.key_value_heads if e.induction_heads]
    return (
        _name(one) if one.attention.is_cross else one.attention.layer,
        count,
        one.attention.num_key_value_heads,
        " ".join(_counted(one)),
        sum(alike) / len(alike) if alike else None,
        ", ".join(induction),
        sum(head.scores.entropy for head in one.heads) / count,
        sum(head.scores.span for head in one.heads) / count,
    )


def _counted(one: AttentionAtlas) -> Iterator[str]:
    for role, letter in LETTERS.items():
        having = sum(role in head.roles for head in one.heads)
        if having:
            yield f"{having}{letter}"


def _role_map(atlas: Atlas) -> HeatMap:
    used = {role for _, head in atlas.heads() for role in head.roles}
    legend = [(letter, _NAMES[role], hue) for hue, (role, letter) in enumerate(LETTERS.items())]
    return HeatMap(
        key="roles",
        title="Role of each head",
        row_title="Layer",
        rows=tuple(map(_name, atlas.attentions)),
        cells=tuple(tuple(map(_role_cell, one.heads)) for one in atlas.attentions),
        legend=(
            *(entry for entry, role in zip(legend, LETTERS, strict=True) if role in used),
            ("+", "and it copies what it reads", None),
            (_NONE, "none of these", None),
        ),
        in_text=True,
    )


def _role_cell(head: Head) -> HeatCell:
    if not head.roles:
        return HeatCell(text=_NONE, share=0.0)
    role = head.roles[0]
    text = LETTERS[role] + ("+" if head.copies else "")
    return HeatCell(text=text, share=getattr(head.scores, role), hue=list(LETTERS).index(role))


def _score_maps(atlas: Atlas) -> Iterator[HeatMap]:
    """One map a score, for a page."""
    for hue, (role, name) in enumerate(_NAMES.items()):
        own = [one for one in atlas.attentions if _is_told(one, role)]
        if own:
            yield HeatMap(
                key=role,
                title=f"{name[0].upper()}{name[1:]}: {_MEANINGS[role]}",
                row_title="Layer",
                rows=tuple(map(_name, own)),
                cells=tuple(tuple(_score_cell(head, role, hue) for head in o.heads) for o in own),
            )


_MEANINGS = {
    "induction": "share of attention on what followed the same token before",
    "duplicate_token": "share of attention on the same token before",
    "previous_token": "share of attention on the token before",
    "alignment": "how steadily it moves on with the tokens, from -1 to 1",
    "first_token": "share of attention on the first token",
}


def _is_told(one: AttentionAtlas, role: str) -> bool:
    return any(getattr(head.scores, role) is not None for head in one.heads)


def _score_cell(head: Head, role: str, hue: int) -> HeatCell:
    score = getattr(head.scores, role)
    if score is None:
        return HeatCell(text="", share=0.0)
    return HeatCell(text=f"{100 * score:.0f}", share=max(0.0, score), hue=hue)


def _notes(atlas: Atlas) -> Iterator[str]:
    limits = atlas.settings.thresholds
    yield (
        "A head has a role from this excess over uniform attention on: "
        + ", ".join(f"{_NAMES.get(key, key)} {limit:g}" for key, limit in limits._asdict().items())
        + " (--thresholds)."
    )
