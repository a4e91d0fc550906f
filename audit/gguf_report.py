"""What the report of a GGUF file shows beside that of every audit: its types, and notes."""

from collections.abc import Iterator

from headcount.arch.registry import gguf_of
from headcount.model.mixers import Attention, LatentAttention, Recurrent
from headcount.model.spec import ModelSpec
from headcount.report.report import Column, Table

from .audited import Audit


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
    notes = (
        ["The cache's element type is llama.cpp's default, f16."] if audit.spec.is_cached else []
    )
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
    notes.extend(_state_notes(audit.spec))
    return tuple(notes)


def _state_notes(spec: ModelSpec) -> Iterator[str]:
    """Where llama.cpp keeps something else than transformers would."""
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    if any(isinstance(mixer, Attention) and mixer.window and mixer.cached for mixer in mixers):
        yield (
            "llama.cpp reserves more for a layer with a window: the window and --ubatch-size"
            " (512) tokens, rounded up to a multiple of 256."
        )
    if any(isinstance(mixer, Recurrent) for mixer in mixers):
        yield (
            "Recurrent state is counted as llama.cpp keeps it: float32, with one column of a"
            " convolution less than in transformers."
        )
    if any(isinstance(mixer, LatentAttention) and mixer.expanded for mixer in mixers):
        yield (
            "The file has no attention.key_length_mla, so llama.cpp caches K and V of every head,"
            " not the latent: convert the model again."
        )
    note = gguf_of(spec.model_type).note
    if note is not None:
        yield note
