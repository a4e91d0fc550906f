"""An audit as people read it: the head, and a table with equal layers collapsed."""

from collections.abc import Iterator

from headcount.model.errors import UnsupportedModelError, bounded, short
from headcount.model.mixers import LowRankAttention, Mixer
from headcount.model.redaction import redacted
from headcount.model.sizes import ASSUMED_ENCODER, AuditRequest, Sizes, fill_in, mha_ratio
from headcount.model.spec import Layer, ModelSpec
from headcount.model.units import format_count
from headcount.report.report import Fact, Report
from headcount.sources.catalogue import CatalogueEntry

from .audit_document import audit_document
from .audit_tables import assumptions_table, layer_table, origins_table, record_table
from .audited import Audit


def audit_report(audit: Audit, request: AuditRequest) -> Report:
    """The whole report of one audit."""
    sizes = fill_in(audit.spec, request)
    tables = [layer_table(audit, sizes)]
    if audit.spec.assumptions:
        tables.append(assumptions_table(audit))
    if request.explain:
        tables.append(origins_table(audit))
    facts = list(_facts(audit, sizes))
    if audit.inventory is not None:
        from .weights_report import weights_table

        tables.insert(1, weights_table(audit.inventory))
    if audit.source.gguf is not None:
        from .gguf_report import type_table

        tables.append(type_table(audit))
    if audit.inventory is not None or audit.active_parameters != audit.spec.parameters:
        from .weights_report import weights_facts

        facts += weights_facts(audit)
    if audit.is_weighed_by_config:
        from .stored_by_config import stored_by_config

        facts.append(stored_by_config(audit).fact())
    return Report(
        title=model_title(audit),
        facts=tuple(facts),
        tables=tuple(tables),
        records=record_table(audit, sizes),
        notes=tuple(_notes(audit, sizes)),
        findings=audit.findings,
        document=audit_document(audit, sizes, explain=request.explain),
        is_brief=True,
    )


def error_report(target: str, error: Exception, what: str = "audited") -> Report:
    """What stands in the place of one model of several that cannot be audited, or planned."""
    shown = bounded(redacted(target))
    return Report(
        title=f"{shown}: cannot be {what}",
        notes=(str(error),),
        document={"error": str(error), "model": {"id": shown}},
    )


def model_title(audit: Audit) -> str:
    """The model on one line: its id, type, parameters, dtype, and where it was found."""
    spec, source = audit.spec, audit.source
    origin = f"from the {source.kind}" if source.kind in ("catalogue", "hub") else source.kind
    if source.entry and source.entry.config_of:
        origin += f", by the config of {source.entry.config_of}"
    parameters = (
        "parameters unknown"
        if spec.parameters is None
        else f"{format_count(spec.parameters)} parameters"
    )
    stored = source.stored_as or _stored_as(audit) or "no dtype"
    model_type = f"assumed: {spec.model_type}" if spec.assumed else spec.model_type
    return f"{source.id} ({model_type}, {parameters}, {stored}; {origin})"


def _stored_as(audit: Audit) -> str | None:
    """The scheme that quantises the weights, and what the others are."""
    if not audit.is_weighed_by_config:
        return audit.spec.dtype
    from headcount.arch.formats.of_configs import scheme_of

    try:
        scheme = scheme_of(audit.config)
    except UnsupportedModelError:
        return "quantised"
    return " and ".join(name for name in (scheme and scheme.name, audit.spec.dtype) if name)


def decoding_layers(spec: ModelSpec) -> list[Layer]:
    """The layers whose heads are the model's: the decoder's where there is one."""
    decoder = [layer for layer in spec.layers if layer.stack == "decoder" and layer.mixers]
    return decoder or [layer for layer in spec.layers if layer.mixers]


def _facts(audit: Audit, sizes: Sizes) -> Iterator[Fact]:
    spec, layers = audit.spec, decoding_layers(audit.spec)
    first = [attending[0] for layer in layers if (attending := _attending(layer))]
    yield Fact(key="layers", title="Layers", value=_layer_counts(spec))
    for key, title, name in (
        ("num_attention_heads", "Attention heads", "num_attention_heads"),
        ("num_key_value_heads", "K/V heads", "num_key_value_heads"),
        ("group_size", "Group size", "group_size"),
        ("head_dim", "head_dim", "head_dim"),
    ):
        if not first:
            break
        kinds = sorted({mixer.heads for mixer in first if mixer.heads})
        note = "/".join(kinds) if key == "num_key_value_heads" else ""
        value, is_detail = _values(first, name), key == "group_size"
        yield Fact(key=key, title=title, value=value, note=note, detail=is_detail)
    if rebuilt := [mixer for mixer in first if isinstance(mixer, LowRankAttention)]:
        note = "elements of a token that a layer keeps; keys and values are rebuilt from them"
        value = ", ".join(str(rank) for rank in dict.fromkeys(m.latent_rank for m in rebuilt))
        yield Fact(key="latent_rank", title="Latent", value=value, note=note)
    yield from _parameter_facts(audit, layers)
    if spec.is_cached:
        yield from _cache_facts(spec, sizes)


def _attending(layer: Layer) -> list[Mixer]:
    """The layer's mixers but recurrent ones: those whose heads are the model's."""
    return [mixer for mixer in layer.mixers if mixer.kind != "recurrent"]


def _parameter_facts(audit: Audit, layers: list[Layer]) -> Iterator[Fact]:
    spec, total = audit.spec, audit.attention_parameters
    per_layer = dict.fromkeys(audit.layer_parts(layer).total for layer in layers)
    if len(per_layer) == 1 and total:
        biases = audit.layer_biases(layers[0])
        (count,) = per_layer
        yield Fact(
            key="attention_parameters_per_layer",
            title="Attention per layer",
            value=count,
            unit="count",
            note=f"{count - biases:,} weights + {biases:,} biases" if biases else "no biases",
            detail=True,
        )
    yield Fact(
        key="attention_parameters",
        title="Attention parameters",
        value=total,
        unit="count",
        note=f"{100 * total / spec.parameters:.1f} % of {spec.parameters:,}"
        if spec.parameters
        else "of an unknown total",
    )


def _layer_counts(spec: ModelSpec) -> str:
    stacks = {layer.stack: 0 for layer in spec.layers}
    for layer in spec.layers:
        stacks[layer.stack] += 1
    if set(stacks) == {"decoder"}:
        return str(stacks["decoder"])
    return ", ".join(f"{count} {stack}" for stack, count in stacks.items())


def _values(mixers: list[Mixer], name: str) -> str:
    return ", ".join(str(v) for v in dict.fromkeys(getattr(m, name) for m in mixers))


def _cache_facts(spec: ModelSpec, sizes: Sizes) -> Iterator[Fact]:
    growth = spec.cache_bytes_per_token(bits=sizes.bits, within=spec.longest(sizes.context))
    first = spec.cache_bytes_of_first_token(bits=sizes.bits)
    yield Fact(
        key="cache_bytes_of_first_token",
        title="KV cache per token",
        value=first,
        unit="exact_bytes",
        note=f"{sizes.kv_dtype}, {sizes.dtype_source}",
    )
    if first != growth:
        yield Fact(
            key="cache_bytes_per_token",
            title="and a further token",
            value=growth,
            unit="exact_bytes",
            note="once every window is full",
        )
    cache = spec.cache_bytes(
        tokens=sizes.context,
        batch_size=sizes.batch_size,
        bits=sizes.bits,
        encoder_tokens=sizes.encoder_tokens,
    )
    encoder = f", {sizes.encoder_tokens:,} encoder tokens" if sizes.encoder_tokens else ""
    yield Fact(
        key="cache_bytes",
        title="KV cache",
        value=cache,
        unit="bytes",
        note=f"{sizes.context:,} tokens x batch {sizes.batch_size}{encoder}",
    )
    state = spec.constant_state_bytes(batch_size=sizes.batch_size, bits=sizes.bits)
    if state:
        yield Fact(
            key="constant_state_bytes",
            title="Constant state",
            value=state,
            unit="bytes",
            note="part of it, whatever the context",
        )
    yield Fact(
        key="mha_ratio",
        title="Against MHA",
        value=mha_ratio(spec, sizes),
        unit="ratio",
        note="less than with a K/V head per attention head",
    )


def _notes(audit: Audit, sizes: Sizes) -> Iterator[str]:
    spec, entry = audit.spec, audit.source.entry
    if audit.source.gguf is not None:
        from .gguf_report import gguf_notes

        yield from gguf_notes(audit)
    if spec.assumed:
        yield (
            f"Warning: nothing describes model_type {spec.model_type!r}, so its config was read by"
            " the standard names; --strict refuses such a model."
        )
    windows = {m.window for layer in spec.layers for m in layer.mixers if m.window}
    if spec.is_cached and any(window <= sizes.context for window in windows):
        yield "A layer with a window keeps window - 1 tokens in transformers' cache."
    own = {s.bits for la in spec.layers for m in la.mixers for s in m.states if s.bits}
    if own - {sizes.bits}:
        yield "Some state has a dtype of its own, whatever that of the cache: most often float32."
    if not spec.is_cached:
        yield "No cache: this model attends in both directions and decodes nothing."
    if any(getattr(m, "broadcasts_key_value", False) for la in spec.layers for m in la.mixers):
        yield (
            "transformers repeats K/V to all heads before caching this architecture; serving"
            " engines store the K/V heads once."
        )
    if spec.assumes_encoder_tokens and sizes.encoder_tokens == spec.encoder_tokens:
        yield f"Warning: {sizes.encoder_tokens:,} {ASSUMED_ENCODER}"
    if audit.census is not None and audit.census.packed:
        yield "The weights are quantised: attention by layer is counted from the config."
    if entry and entry.confidence != "verbatim":
        how = "secondary sources" if entry.confidence == "assembled" else "class defaults"
        yield f"The catalogue's config of this model was put together from {how} (--explain)."
    if entry and entry.config_of:
        yield entry.stands_in or _own_keys(entry)
    if spec.parameters_source == "catalogue" and entry and " only " in (entry.built_as or ""):
        yield f"The total counts the {entry.built_as}."
    if audit.inventory is not None:
        from .weights_report import weights_notes

        yield from weights_notes(audit.inventory, _published(audit))
    if entry and entry.published_parameters and entry.published_parameters != spec.parameters:
        reason = f": {entry.notes[-1]}" if entry.notes else ""
        yield f"Published count: {entry.published_parameters:,}{reason}"
    if spec.parameters_unknown is not None and audit.inventory is None:
        yield f"The config does not give the total: {spec.parameters_unknown}."
    if not spec.is_made_for(sizes.context):
        yield (
            f"Warning: the context of {sizes.context:,} is beyond the model's maximum of"
            f" {spec.max_position_embeddings:,}."
        )


def _own_keys(entry: CatalogueEntry) -> str:
    """What of another model's config is this one's own."""
    own = ", ".join(f"{key} {short(value)}" for key, value in (entry.changes or {}).items())
    return f"Of its own config {entry.id} has: {own or 'nothing that differs'}."


def _published(audit: Audit) -> int | None:
    """What the catalogue says of a model of the Hub whose headers were read."""
    if audit.source.kind != "hub":
        return None
    from headcount.sources.catalogue import find_row, read_entry

    row = find_row(audit.source.id)
    return None if row is None else read_entry(row).published_parameters
