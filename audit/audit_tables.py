"""The tables of an audit: layers, for people and for programs, and where values came from."""

from collections.abc import Iterator

from headcount.model.errors import bounded
from headcount.model.mixers import Mixer, Parts
from headcount.model.sizes import Sizes
from headcount.model.spec import Layer
from headcount.model.units import format_layers
from headcount.report.report import Column, Table

from .audited import Audit

_BRIEF_ROWS = 5
_COLUMNS = (
    Column(key="layers", title="Layers"),
    Column(key="kind", title="Mixer"),
    Column(key="num_attention_heads", title="Heads", unit="count"),
    Column(key="num_key_value_heads", title="K/V", unit="count"),
    Column(key="group_size", title="Group", unit="count", drop=2),
    Column(key="head_dim", title="head_dim", unit="count", drop=1),
    Column(key="window", title="Window", unit="count"),
    *(Column(key=part, title=part, unit="count", drop=4) for part in ("q", "k", "v", "o")),
    Column(key="norm", title="norms", unit="count", drop=5),
    Column(key="other", title="other", unit="count", drop=5),
    Column(key="parameters", title="Parameters/layer", unit="count", drop=3),
    Column(key="cache_bytes", title="Cache/layer", unit="bytes"),
)


def layer_table(audit: Audit, sizes: Sizes) -> Table:
    """One row per kind of layer and mixer; columns that are empty everywhere are left out."""
    alike: dict[tuple[str, tuple[tuple[object, ...], ...]], list[int]] = {}
    for layer in audit.spec.layers:
        alike.setdefault((layer.stack, _rows_of(audit, sizes, layer)), []).append(layer.index)
    several = len({layer.stack for layer in audit.spec.layers}) > 1
    rows = [
        (f"{stack} {format_layers(indices)}" if several else format_layers(indices), *row)
        for (stack, values), indices in alike.items()
        for row in values
    ]
    keep = [i for i in range(len(_COLUMNS)) if any(row[i] not in (None, 0) for row in rows)]
    return Table(
        key="layers",
        title="Layers",
        columns=tuple(_COLUMNS[i] for i in keep),
        rows=tuple(tuple(row[i] for i in keep) for row in rows),
        brief=_BRIEF_ROWS,
    )


def record_table(audit: Audit, sizes: Sizes) -> Table:
    """One row per layer and mixer, nothing collapsed: for programs."""
    return Table(
        key="layers",
        title="Layers",
        columns=(
            Column(key="stack", title="Stack"),
            Column(key="index", title="Layer"),
            *_COLUMNS[1:],
        ),
        rows=tuple(
            (layer.stack, layer.index, *row)
            for layer in audit.spec.layers
            for row in _rows_of(audit, sizes, layer)
        ),
    )


def _rows_of(audit: Audit, sizes: Sizes, layer: Layer) -> tuple[tuple[object, ...], ...]:
    if not layer.mixers:
        return (("no attention", *(None,) * (len(_COLUMNS) - 3), 0),)
    return tuple(
        (*geometry(layer, mixer), *_part_values(parts), sizes.mixer_bytes(mixer))
        for mixer, parts in zip(layer.mixers, audit.mixer_parts(layer), strict=True)
    )


def geometry(layer: Layer, mixer: Mixer) -> tuple[object, ...]:
    """What a mixer is called, heads, K/V heads, group_size, head_dim and window."""
    kind = mixer.heads or mixer.kind.replace("_attention", "")
    if mixer.kind == "recurrent":
        kind = str(getattr(mixer, "form", kind))
    elif mixer.kind == "compressed_attention":
        kind = f"compressed {kind}"
    elif mixer.kind == "low_rank_attention":
        kind = f"{kind}, rebuilt"
    if not getattr(mixer, "owns_parameters", True):
        kind = f"{kind}, used again"
    if mixer.kind == "cross_attention":
        kind = f"cross {kind}"
    if layer.shares_cache_with is not None:
        kind = f"{kind}, cache of {layer.shares_cache_with}"
    return (
        kind,
        mixer.num_attention_heads,
        mixer.num_key_value_heads,
        mixer.group_size,
        mixer.head_dim,
        mixer.window,
    )


def _part_values(parts: Parts) -> tuple[int, ...]:
    return (parts.q, parts.k, parts.v, parts.o, parts.norm, parts.other, parts.total)


def assumptions_table(audit: Audit) -> Table:
    """What was taken for granted of a type that nothing describes."""
    columns = ("About", "Assumed", "By")
    return Table(
        key="assumptions",
        title=f"Assumed of {bounded(audit.spec.model_type)}, whose class may do otherwise",
        columns=tuple(Column(key=title.lower(), title=title) for title in columns),
        rows=tuple((about, taken, by) for about, taken, by, _ in audit.spec.assumptions),
    )


def origins_table(audit: Audit) -> Table:
    """Where each value came from: what `--explain` prints."""
    columns = ("Field", "Value", "Where it came from")
    return Table(
        key="origins",
        title="Where each value came from",
        columns=tuple(Column(key=title.split()[0].lower(), title=title) for title in columns),
        rows=(
            *(
                (name, _short(origin.value), origin.source)
                for name, origin in sorted(audit.spec.origins.items())
            ),
            *_catalogue_sources(audit),
        ),
    )


def _catalogue_sources(audit: Audit) -> Iterator[tuple[str, str, str]]:
    entry = audit.source.entry
    for source in entry.sources if entry else ():
        yield "(config)", entry.confidence if entry else "", source


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 48 else f"{text[:45]}..."
