"""What differs between two models, layer by layer: before and after a conversion, base and tune."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headcount.model.sizes import AuditRequest, Sizes, fill_in
from headcount.model.spec import Layer
from headcount.model.units import format_layers
from headcount.report.cells import cell
from headcount.report.report import Column, Report, Table

from .audited import Audit

_SCHEMA_VERSION = 1
_Place = tuple[str, int]  # stack, index

# What is compared, and the unit that it prints in.
_MODEL_FIELDS = {
    **{"model_type": "text", "dtype": "text", "layers": "count", "hidden_size": "count"},
    **{"vocab_size": "count", "tie_word_embeddings": "text", "max_position_embeddings": "count"},
    **{"parameters": "count", "attention_parameters": "count", "weights_bytes": "bytes"},
    **{"cache_bytes_of_first_token": "exact_bytes", "cache_bytes_per_token": "exact_bytes"},
    **{"cache_bytes": "bytes"},
}
_MIXER_FIELDS = {
    **{"kind": "text", "heads": "text", "num_attention_heads": "count"},
    **{"num_key_value_heads": "count", "group_size": "count", "head_dim": "count"},
    **{"v_head_dim": "count", "window": "count", "parameters": "count", "cache_bytes": "bytes"},
    **{"shares_cache_with": "text", "layer": "text"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One field that differs: None where a side does not have it."""

    name: str
    a: object
    b: object

    def document(self) -> dict[str, object]:
        return {"a": self.a, "b": self.b}


def diff_report(a: Audit, b: Audit, request: AuditRequest) -> Report:
    """Every field of the models and of their layers that is not the same in both.

    Both caches are sized for one context: what was asked for, or the smaller of the two maxima.
    """
    context = request.context or min(fill_in(x.spec, request).context for x in (a, b))
    request = request._replace(context=context)
    sizes = (fill_in(a.spec, request), fill_in(b.spec, request))
    model = _differences(_model_values(a, sizes[0]), _model_values(b, sizes[1]))
    both = _layers(a, sizes[0]), _layers(b, sizes[1])
    layers = dict(_layer_differences(*both))
    same = not model and not layers
    tables = (
        *_model_tables(_model_values(a, sizes[0]), _model_values(b, sizes[1])),
        *((_layer_table(layers),) if layers else ()),
    )
    return Report(
        title=f"A = {a.source.id}, B = {b.source.id}: {_verdict(layers, *both, same=same)}",
        tables=tables,
        records=_records(model, layers),
        title_is_answer=True,
        notes=(f"Caches hold {context:,} tokens of batch {request.batch_size}.",),
        document={
            "schema_version": _SCHEMA_VERSION,
            "models": [{"id": x.source.id, "source": x.source.kind} for x in (a, b)],
            "request": {"context": context, "batch_size": request.batch_size},
            "same": same,
            "model": {difference.name: difference.document() for difference in model},
            "layers": [
                {"stack": stack, "index": index} | {"fields": {d.name: d.document() for d in found}}
                for (stack, index), found in layers.items()
            ],
        },
    )


def _verdict(
    layers: Collection[_Place], a: Collection[_Place], b: Collection[_Place], *, same: bool
) -> str:
    """In words, of the layers that differ and those that each has."""
    if same:
        return "nothing that is counted differs"
    if not layers:
        return "the layers are the same"
    common, shared = (sum(one in a and one in b for one in places) for places in (a, layers))
    number = "all" if shared == common > 1 else f"{shared:,} of the"
    verb = "differs" if shared == 1 else "differ"
    if common == max(len(a), len(b)):
        return f"{number} {common:,} layers {verb}"
    which = f"{number} {common:,} that both have {verb}" if common else "of another stack"
    return f"{len(a):,} layers against {len(b):,}, {which}"


def _model_values(audit: Audit, sizes: Sizes) -> dict[str, object]:
    spec = audit.spec
    return {
        "model_type": spec.model_type,
        "dtype": audit.source.stored_as or spec.dtype,
        "layers": len(spec.layers),
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "max_position_embeddings": spec.max_position_embeddings,
        "parameters": spec.parameters,
        "attention_parameters": audit.attention_parameters,
        "weights_bytes": audit.weights_bytes,
        "cache_bytes_of_first_token": spec.cache_bytes_of_first_token(bits=sizes.bits),
        "cache_bytes_per_token": spec.cache_bytes_per_token(
            bits=sizes.bits, within=spec.longest(sizes.context)
        ),
        "cache_bytes": sum(sizes.layer_bytes(layer) for layer in spec.layers),
    }


def _layers(audit: Audit, sizes: Sizes) -> dict[_Place, dict[str, object]]:
    return {
        (layer.stack, layer.index): _layer_values(audit, sizes, layer)
        for layer in audit.spec.layers
    }


def _layer_values(audit: Audit, sizes: Sizes, layer: Layer) -> dict[str, object]:
    """The fields of each mixer; the second one's in a layer have `2.` in front."""
    values: dict[str, object] = {"layer": "yes", "shares_cache_with": layer.shares_cache_with}
    for number, (mixer, parts) in enumerate(
        zip(layer.mixers, audit.mixer_parts(layer), strict=True), start=1
    ):
        own = {name: getattr(mixer, name, None) for name in _MIXER_FIELDS}
        own |= {"parameters": parts.total, "cache_bytes": sizes.mixer_bytes(mixer)}
        del own["layer"], own["shares_cache_with"]
        values |= {name if number == 1 else f"{number}.{name}": own[name] for name in own}
    return values


def _differences(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[Difference, ...]:
    return tuple(
        Difference(name=name, a=a.get(name), b=b.get(name))
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    )


def _layer_differences(
    a: Mapping[_Place, Mapping[str, object]], b: Mapping[_Place, Mapping[str, object]]
) -> Iterator[tuple[_Place, tuple[Difference, ...]]]:
    """The layers that differ. Of one that only one model has, that is all there is to say."""
    for key in dict.fromkeys((*a, *b)):
        if key in a and key in b:
            found = _differences(a[key], b[key])
        else:
            there = {"a": "yes" if key in a else None, "b": "yes" if key in b else None}
            found = (Difference(name="layer", **there),)
        if found:
            yield key, found


_SHOWN = 6  # rows of layers, without --details
_SIDES = (
    Column(key="field", title="Field"),
    Column(key="a", title="A"),
    Column(key="b", title="B"),
    Column(key="ratio", title="B/A", unit="ratio"),
)


def _row(name: str, a: object, b: object) -> tuple[object, ...]:
    """Both values as text, since the rows of a table have units of their own."""
    unit = _MODEL_FIELDS.get(name) or _MIXER_FIELDS[name.rpartition(".")[2]]
    ratio = None
    if type(a) is int and type(b) is int and a and b and a != b and unit != "text":
        ratio = b / a
    return (name, cell(a, unit) or "-", cell(b, unit) or "-", ratio)


def _model_tables(a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[Table]:
    """What differs, and what does not, which --details shows."""
    for key, title, same, brief in (
        ("model", "Models", False, None),
        ("same", "The same of both", True, 0),
    ):
        rows = tuple(_row(name, a[name], b[name]) for name in a if (a[name] == b[name]) is same)
        if rows:
            yield Table(key=key, title=title, columns=_SIDES, rows=rows, brief=brief)


def _layer_table(layers: Mapping[_Place, tuple[Difference, ...]]) -> Table:
    """One row per difference; layers with the same one share it."""
    alike: dict[tuple[str, str, object, object], list[int]] = {}
    for (stack, index), found in layers.items():
        for d in found:
            alike.setdefault((stack, d.name, d.a, d.b), []).append(index)
    several = len({stack for stack, _ in layers}) > 1
    ordered = sorted(alike.items(), key=lambda item: (item[0][0], item[1]))
    return Table(
        key="layers",
        title="Layers that differ",
        brief=_SHOWN,
        columns=(Column(key="layers", title="Layers"), *_SIDES),
        rows=tuple(
            (
                f"{stack} {format_layers(indices)}" if several else format_layers(indices),
                *_row(name, a, b),
            )
            for (stack, name, a, b), indices in ordered
        ),
    )


def _records(
    model: tuple[Difference, ...], layers: Mapping[_Place, tuple[Difference, ...]]
) -> Table:
    """Raw values, one row per difference, for programs."""
    names = ("stack", "layer", "field", "a", "b")
    return Table(
        key="differences",
        title="Differences",
        columns=tuple(Column(key=name, title=name) for name in names),
        rows=(
            *((None, None, d.name, d.a, d.b) for d in model),
            *(
                (stack, index, d.name, d.a, d.b)
                for (stack, index), found in layers.items()
                for d in found
            ),
        ),
    )
