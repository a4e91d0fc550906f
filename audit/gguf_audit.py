"""The audit of a GGUF file: its key-values held against its own tensors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .against_weights import stored_parts
from .audited import Audit
from .census import Census, take_census
from .family.gguf import GGUF_FAMILY, gguf_spec
from .family.parameters import Expected
from .inventory import take_inventory
from .mixers import Attention
from .report import Column, Finding, Table
from .rules import files, geometry
from .rules.facts import Facts
from .rules.rule import in_order, run
from .source.checkpoint import Checkpoint
from .source.found import Source
from .source.safetensors import TensorInfo
from .spec import Layer, ModelSpec

# Tables of angles that a converter computed: not parameters.
_TABLES = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})


def audit_gguf(source: Source, metadata: Mapping[str, Any], checkpoint: Checkpoint) -> Audit:
    """Audits the model of a GGUF file. Raises HeadcountError."""
    spec = _fitted(gguf_spec(metadata, source.where), checkpoint)
    # Shapes are those of the parameters whatever the type: blocks of codes are not packed columns.
    names = {"decoder": GGUF_FAMILY.names}
    census = replace(take_census(checkpoint, spec, names), packed=False)
    held = sum(t.elements for t in checkpoint.tensors.values() if t.name not in _TABLES)
    facts = Facts(
        spec=replace(spec, dtype=None),  # the cache's: weights of every type go with it
        family=GGUF_FAMILY,
        where=source.where,
        checkpoint=checkpoint,
        census=census,
        inventory=take_inventory(
            checkpoint.tensors,
            census,
            names,
            spec,
            copies=frozenset(),
            buffers=_TABLES,
            bits=None,
        ),
        observed={},
        has_head=spec.is_cached,
        expected=Expected({}, None, False),
        counted=None,
        quantisation=None,
        beside=False,
    )
    counted = None if checkpoint.missing else held
    return Audit(
        source=replace(source, stored_as=_main_types(census)),
        spec=replace(
            spec, parameters=counted, parameters_source=None if counted is None else "headers"
        ),
        family=GGUF_FAMILY,
        census=census,
        stored=stored_parts(census, spec),
        findings=_findings(facts),
    )


def _fitted(spec: ModelSpec, checkpoint: Checkpoint) -> ModelSpec:
    """What only the tensors tell: a tied head, and layers whose values are their keys."""
    names = checkpoint.tensors
    return replace(
        spec,
        tie_word_embeddings="output.weight" not in names,
        layers=tuple(_without_value(layer, names) for layer in spec.layers),
    )


def _without_value(layer: Layer, names: Mapping[str, TensorInfo]) -> Layer:
    block = f"blk.{layer.index}."
    if f"{block}attn_k.weight" not in names or f"{block}attn_v.weight" in names:
        return layer
    mixers = (
        replace(mixer, has_value=False) if isinstance(mixer, Attention) else mixer
        for mixer in layer.mixers
    )
    return replace(layer, mixers=tuple(mixers))


def _findings(facts: Facts) -> tuple[Finding, ...]:
    """What the rules find, with the cure that a GGUF file has."""
    hint = "the file's key-values and its tensors disagree: convert the model again"
    found = in_order(run((*geometry.RULES, *files.RULES), facts))
    return tuple(
        finding._replace(hint=hint) if "config.json" in finding.hint else finding
        for finding in found
    )


def _main_types(census: Census) -> str:
    """`Q4_K` or `Q4_K/Q6_K`: the types that hold a tenth of the bytes or more."""
    total = sum(census.bytes_by_dtype.values())
    return "/".join(name for name, size in census.bytes_by_dtype.items() if size * 10 >= total)


def type_table(audit: Audit) -> Table:
    """What each element type holds: tensors, parameters, bytes and bits per parameter."""
    rows: dict[str, list[int]] = {}
    for tensor in audit.checkpoint.tensors.values() if audit.checkpoint else ():
        row = rows.setdefault(tensor.dtype, [0, 0, 0])
        row[0] += 1
        row[1] += tensor.elements
        row[2] += tensor.nbytes
    ordered = sorted(rows.items(), key=lambda item: -item[1][2])
    return Table(
        key="types",
        title="Stored types",
        columns=(
            Column(key="type", title="Type"),
            Column(key="tensors", title="Tensors", unit="count"),
            Column(key="elements", title="Elements", unit="count"),
            Column(key="bytes", title="Bytes", unit="bytes"),
            Column(key="bits", title="Bits/element", unit="bits"),
        ),
        rows=tuple(
            (name, tensors, elements, size, 8 * size / elements if elements else None)
            for name, (tensors, elements, size) in ordered
        ),
    )


def type_document(audit: Audit) -> list[dict[str, object]]:
    """The rows of `type_table` for JSON, raw."""
    table = type_table(audit)
    names = [column.key for column in table.columns[:-1]]
    return [dict(zip(names, row[:-1], strict=True)) for row in table.rows]


def gguf_notes(audit: Audit) -> tuple[str, ...]:
    """What only a GGUF file has to say: experts in use, and who keeps which cache."""
    metadata = audit.source.gguf or {}
    prefix = f"{audit.spec.model_type}."
    experts, used = (
        metadata.get(prefix + "expert_count"),
        metadata.get(prefix + "expert_used_count"),
    )
    notes = ["The cache's element type is llama.cpp's default, f16."]
    if type(experts) is int and type(used) is int and 0 < used < experts and audit.spec.parameters:
        tensors = audit.checkpoint.tensors.values() if audit.checkpoint else ()
        routed = sum(t.elements for t in tensors if "_exps." in t.name)
        active = audit.spec.parameters - routed + routed * used // experts
        notes.append(f"{used} of {experts} experts see a token: {active:,} parameters are active.")
    window = metadata.get(prefix + "attention.sliding_window")
    mixers = [mixer for layer in audit.spec.layers for mixer in layer.mixers]
    if window and not any(mixer.window for mixer in mixers):
        notes.append(
            f"attention.sliding_window is {window}, but no layer is counted with it: the file does"
            f" not say which, and llama.cpp is not known to use it for {audit.spec.model_type}."
        )
    if any(not layer.mixers for layer in audit.spec.layers):
        notes.append("Layers without attention keep a recurrent state, which is not counted.")
    return tuple(notes)
