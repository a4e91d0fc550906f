"""An atlas as people read it: a map of roles, the heads that have one, and the layers."""

from collections import Counter
from collections.abc import Iterator

from headcount.report.report import Column, Fact, HeatMap, Report, Table

from .atlas import Atlas, AtlasSettings, AttentionAtlas, Head
from .atlas_document import atlas_document, head_records
from .atlas_maps import MapRow, attention_name, is_told, role_map, score_map, score_title
from .roles import LETTERS, ROLE_NAMES, counted_letters

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
    found = Table(key="roles", title="Heads with a role", columns=_HEADS, rows=rows, brief=0)
    layers = Table(
        key="layers",
        title="Layers",
        columns=_LAYERS,
        rows=tuple(_layer_row(one) for one in atlas.attentions),
        brief=0,
    )
    return Report(
        title=f"Heads of {atlas.id}",
        facts=tuple(_facts(atlas)),
        heat_maps=tuple(_maps(atlas)),
        tables=(*((found,) if rows else ()), layers),
        notes=(thresholds_note(atlas), *atlas.warnings),
        document=atlas_document(atlas),
        records=head_records(atlas),
    )


def tokens_fact(settings: AtlasSettings) -> Fact:
    """What was read."""
    begin = "" if settings.start_id is None else f" behind token {settings.start_id}"
    return Fact(
        key="tokens",
        title="Tokens",
        value=f"{settings.tokens} random tokens{begin}, and the same once more",
        note=f"{settings.sequences} sequences, seed {settings.seed}",
    )


def _facts(atlas: Atlas) -> Iterator[Fact]:
    settings, cost = atlas.settings, atlas.cost
    heads = [head for _, head in atlas.heads()]
    with_role = sum(bool(head.roles) for head in heads)
    counts = Counter(ROLE_NAMES[role] for head in heads for role in head.roles)
    yield Fact(
        key="verdict",
        title="Verdict",
        value=f"{with_role:,} of {len(heads):,} heads have a role",
        note=", ".join(f"{count:,} {name}" for name, count in counts.most_common()),
    )
    yield tokens_fact(settings)
    yield Fact(
        key="cost",
        title="Cost",
        value=f"{cost.forward_passes:,} forward passes",  # never one: the last is for norms
        note=f"{cost.tokens:,} tokens, {cost.seconds:.1f} s on {settings.device}, {settings.dtype}",
    )


def _head_row(one: AttentionAtlas, head: Head) -> tuple[object, ...]:
    scores, role = head.scores, head.roles[0]
    return (
        attention_name(one) if one.attention.is_cross else one.attention.layer,
        head.head,
        head.key_value_head,
        ", ".join(ROLE_NAMES[each] for each in head.roles),
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
        attention_name(one) if one.attention.is_cross else one.attention.layer,
        count,
        one.attention.num_key_value_heads,
        counted_letters(head.roles for head in one.heads),
        sum(alike) / len(alike) if alike else None,
        ", ".join(induction),
        sum(head.scores.entropy for head in one.heads) / count,
        sum(head.scores.span for head in one.heads) / count,
    )


def _maps(atlas: Atlas) -> Iterator[HeatMap]:
    """The map of roles, and for a page one of each score."""
    rows = [MapRow(attention_name(one), one.heads) for one in atlas.attentions]
    yield role_map("roles", "Role of each head", rows, in_text=True)
    for role in LETTERS:
        own = [row for row in rows if is_told(row, role)]
        if own:
            yield score_map(role, score_title(role), own, role)


def thresholds_note(atlas: Atlas) -> str:
    """From which score on a head has a role."""
    limits = atlas.settings.thresholds._asdict()
    named = (f"{ROLE_NAMES.get(key, key)} {limit:g}" for key, limit in limits.items())
    return (
        "A head has a role from this excess over uniform attention on:"
        f" {', '.join(named)} (--thresholds)."
    )
