"""Reading the weights themselves: NaN, infinities, zeros, and how alike the K/V heads are.

Tensor by tensor, so that no more than the largest one is in memory.
"""

import time
from collections.abc import Iterator
from math import isfinite

import torch
from tqdm import tqdm

from headcount.audit.audit_report import audit_report
from headcount.audit.audited import Audit
from headcount.audit.census import Placed
from headcount.audit.errors import UnsupportedModelError
from headcount.audit.mixers import Attention
from headcount.audit.report import Column, Report, Table
from headcount.audit.rules.rule import in_order, run
from headcount.audit.rules.scanned import RULES, LayerScan, ScanFacts, TensorScan
from headcount.audit.sizes import AuditRequest
from headcount.audit.source.checkpoint import Checkpoint
from headcount.audit.source.safetensors import TensorInfo
from headcount.audit.spec import MixerKey

from .stream.reader import DTYPES, SourceReader

_CHUNK = 2**22  # elements that are looked at in one piece
_COLUMNS = (
    Column(key="layer", title="Layer"),
    Column(key="num_key_value_heads", title="K/V", unit="count"),
    Column(key="distinct", title="Distinct", unit="count"),
    Column(key="key_similarity", title="K similarity"),
    Column(key="value_similarity", title="V similarity"),
)


def scan_report(audit: Audit, request: AuditRequest) -> Report:
    """The audit's report with what a scan of the weights adds. Raises HeadcountError."""
    start = time.perf_counter()
    facts = scan(audit)
    report = audit_report(audit, request)
    findings = in_order((*report.findings, *run(RULES, facts)))
    document = {
        **report.document,
        "scan": _document(facts),
        "findings": [finding.document() for finding in findings],
    }
    return report._replace(
        tables=(*report.tables, *([_table(facts)] if facts.layers else [])),
        notes=(*report.notes, _note(audit, facts, time.perf_counter() - start)),
        findings=findings,
        document=document,
    )


def scan(audit: Audit, *, progress: bool = True) -> ScanFacts:
    """Reads every float tensor of a local checkpoint once. Raises HeadcountError.

    `progress`: a bar on stderr where that is a terminal.
    """
    checkpoint = _local(audit)
    of_heads = _key_value_tensors(audit)
    heads: dict[MixerKey, dict[str, list[torch.Tensor]]] = {}
    tensors: list[TensorScan] = []
    layers: list[LayerScan] = []
    floats = [info for info in checkpoint.tensors.values() if info.dtype in DTYPES]
    left = _counts(of_heads)
    hide = None if progress else True
    with (
        SourceReader(checkpoint.folder) as reader,
        tqdm(
            total=sum(info.nbytes for info in floats), unit="B", unit_scale=True, disable=hide
        ) as bar,
    ):
        for info in sorted(floats, key=lambda info: (info.file, info.offsets)):
            values = reader.tensor(info)
            tensors.append(_look(info, values))
            bar.update(info.nbytes)
            if info.name in of_heads:
                key, mixer, part = of_heads[info.name]
                split = _by_head(values, mixer, audit.family.names.transposed)
                heads.setdefault(key, {}).setdefault(part, []).append(split)
                left[key] -= 1
                if left[key] == 0:
                    layers.append(_compare(key[1], mixer, heads.pop(key)))
    return ScanFacts(tuple(tensors), tuple(sorted(layers)))


def _local(audit: Audit) -> Checkpoint:
    checkpoint = audit.checkpoint
    if checkpoint is None or audit.source.kind not in ("folder", "file"):
        raise UnsupportedModelError(
            f"{audit.source.id}: --scan reads the weights, so it needs a folder or a file that"
            " holds them"
        )
    if not all(header.path.name.endswith(".safetensors") for header in checkpoint.files):
        raise UnsupportedModelError(f"{audit.source.id}: --scan reads safetensors files only")
    return checkpoint


def _key_value_tensors(audit: Audit) -> dict[str, tuple[MixerKey, Attention, str]]:
    """Each separate k and v tensor of a decoder's self-attention, biases included."""
    found: dict[str, tuple[MixerKey, Attention, str]] = {}
    census = audit.census
    if census is None or census.packed:
        return found
    for layer in audit.spec.layers:
        for key, mixer in layer.keyed_mixers():
            placed = census.layers.get(key, ())
            if layer.stack != "decoder" or type(mixer) is not Attention or not _is_split(placed):
                continue
            for item in placed:
                part, info = item.place.part, item.tensor
                if part in ("k", "v") and _fits(info, mixer) and info.dtype in DTYPES:
                    found[info.name] = (key, mixer, part)
    return found


def _is_split(placed: tuple[Placed, ...]) -> bool:
    return {"k", "v"} <= {item.place.part for item in placed}


def _fits(info: TensorInfo, mixer: Attention) -> bool:
    rows = mixer.num_key_value_heads * mixer.head_dim
    return bool(info.shape) and rows in (info.shape[0], info.shape[-1])


def _counts(of_heads: dict[str, tuple[MixerKey, Attention, str]]) -> dict[MixerKey, int]:
    counts: dict[MixerKey, int] = {}
    for key, _, _ in of_heads.values():
        counts[key] = counts.get(key, 0) + 1
    return counts


def _look(info: TensorInfo, values: torch.Tensor) -> TensorScan:
    """Counts what is not finite. Least and greatest value tell most tensors in one fast pass: one
    is NaN where any value is, and isfinite is 60 times slower on 16-bit floats."""
    nans = infinities = 0
    zero = info.elements > 0
    for chunk in _chunks(values) if zero else ():
        least, greatest = (float(value) for value in torch.aminmax(chunk))
        if not (isfinite(least) and isfinite(greatest)):
            nans += int(torch.isnan(chunk).sum())
            infinities += int(torch.isinf(chunk).sum())
        zero = zero and least == greatest == 0
    return TensorScan(info.name, info.elements, nans, infinities, zero)


def _chunks(values: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from values.reshape(-1).split(_CHUNK)


def _by_head(values: torch.Tensor, mixer: Attention, transposed: bool) -> torch.Tensor:
    """[K/V heads, the rest]: rows of a Linear, or columns of a Conv1D, belong to heads in order."""
    heads = mixer.num_key_value_heads
    if values.dim() == 2 and transposed:
        values = values.t()
    return values.reshape(heads, -1)


def _compare(index: int, mixer: Attention, parts: dict[str, list[torch.Tensor]]) -> LayerScan:
    heads = mixer.num_key_value_heads
    return LayerScan(
        layer=index,
        num_key_value_heads=heads,
        repeated=_distinct([tensor for part in parts.values() for tensor in part], heads),
        key_similarity=_similarity(parts.get("k", [])),
        value_similarity=_similarity(parts.get("v", [])),
    )


def _distinct(tensors: list[torch.Tensor], heads: int) -> int | None:
    """The least number of K/V heads that equal runs of neighbours can be replaced by."""
    for count in range(1, heads):
        if heads % count == 0 and all(_repeats(tensor, heads // count) for tensor in tensors):
            return count
    return None


def _repeats(tensor: torch.Tensor, run_length: int) -> bool:
    runs = tensor.reshape(-1, run_length, tensor.shape[1])
    return bool((runs == runs[:, :1]).all())


def _similarity(tensors: list[torch.Tensor]) -> float | None:
    """Mean cosine over all pairs of heads, of weights and biases together."""
    if not tensors or tensors[0].shape[0] < 2:
        return None
    flat = torch.cat([tensor.float() for tensor in tensors], dim=1)
    units = torch.nn.functional.normalize(flat, dim=1)
    heads = units.shape[0]
    total = float((units @ units.t()).sum()) - float((units * units).sum())
    mean = total / (heads * (heads - 1))
    return mean if mean == mean else None  # NaN weights have no direction


def _table(facts: ScanFacts) -> Table:
    return Table(
        key="scan",
        title="K/V heads by their weights",
        columns=_COLUMNS,
        rows=tuple(
            (
                layer.layer,
                layer.num_key_value_heads,
                layer.num_key_value_heads if layer.repeated is None else layer.repeated,
                _rounded(layer.key_similarity),
                _rounded(layer.value_similarity),
            )
            for layer in facts.layers
        ),
    )


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _note(audit: Audit, facts: ScanFacts, seconds: float) -> str:
    checkpoint = audit.checkpoint
    left = len(checkpoint.tensors) - len(facts.tensors) if checkpoint else 0
    more = f"; {left:,} that hold no floats were not" if left else ""
    alike = (
        " Similarity is the mean cosine over all pairs of K/V heads of a layer: near 0 they have"
        " nothing in common, at 1 they are equal."
        if facts.layers
        else " Its K/V heads are not compared: k and v have no tensors of their own."
    )
    return f"{len(facts.tensors):,} tensors were scanned in {seconds:.1f} s{more}.{alike}"


def _document(facts: ScanFacts) -> dict[str, object]:
    """The object `scan` of the JSON report; tensors only where something is wrong with them."""
    odd = [t for t in facts.tensors if t.nans or t.infinities or t.zero]
    return {
        "tensors": len(facts.tensors),
        "odd_tensors": [tensor._asdict() for tensor in odd],
        "layers": [layer._asdict() for layer in facts.layers],
    }
