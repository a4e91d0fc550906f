"""Rewritten layers in files of their own, for the time of a run.

Each layer is a file of the work folder, in its journal once it is on the disk: a run that is killed
goes on with the layers that it has. A plan reads the files in place of the source's tensors.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any

from headcount.running.progress import progress_bar
from headcount.sources.identity import ReadFile
from headcount.sources.safetensors import TensorInfo, read_header

from ..latent.by_weights import layers_by_weights
from ..plan.errors import BadValuesError
from ..plan.plan import ConversionPlan, OutputFile
from ..plan.rewriting import Rewriting
from ..plan.source import ConversionSource
from ..plan.steps import Cast, Copy, Factor, Part, Step, make
from ..stream.hashing import digest_of_bytes
from ..stream.reader import DTYPES, SourceReader
from ..stream.repeated_heads import Repeats
from ..stream.safetensors_header import check_written, header_bytes
from ..stream.weight_file import raw_bytes
from ..stream.work_folder import REWRITTEN, WorkFolder
from ..stream.writer import NewFile, json_bytes
from .layer import MadeBefore, RewrittenLayer
from .tensors import key_value_heads
from .uncalibrated import uncalibrated_layers

_STORED = {dtype: name for name, dtype in DTYPES.items()}
_ALL = f"{REWRITTEN}/layers.json"  # is there once all layers are


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewritten:
    """Where the tensors lie that take the place of the source's, by name, and the `files` that hold
    them; the digests of what they have `replaced`; what was measured of each layer; how many of its
    K/V heads were no copies of their neighbours (`distinct`)."""

    tensors: Mapping[str, TensorInfo]
    files: Mapping[str, ReadFile]
    replaced: Mapping[str, str]
    measured: Mapping[int, Mapping[str, Any]]
    distinct: Mapping[int, int]


NOTHING = Rewritten(tensors={}, files={}, replaced={}, measured={}, distinct={})


def rewrite_layers(rewriting: Rewriting, work: WorkFolder, *, progress: bool) -> Rewritten:
    """Rewrites every layer that is not there yet. Raises HeadcountError; OSError is a failure to
    write."""
    (work.path / REWRITTEN).mkdir(exist_ok=True)
    if not _is_complete(work):
        written = []
        for layer in _layers(rewriting, work, progress):
            if _name(layer.index) not in work.finished:
                _write(rewriting, layer, work)
            written.append(layer.index)
        _keep(work, _ALL, [json_bytes(written)], {"layers": written})
    return _found(work)


def _is_complete(work: WorkFolder) -> bool:
    """Whether an earlier run has finished all layers, and each of them is whole."""
    known = work.finished.get(_ALL)
    return known is not None and all(_name(i) in work.finished for i in known.measured["layers"])


def names_of(rewritten: Rewritten, layers: Collection[int]) -> frozenset[str]:
    """The tensors of `layers` that were rewritten."""
    files = {_name(index) for index in layers}
    found = rewritten.tensors.items()
    return frozenset(name for name, info in found if info.file.endswith(tuple(files)))


def redirected(plan: ConversionPlan, rewritten: Rewritten) -> ConversionPlan:
    """The plan with steps that read rewritten tensors where there are any."""
    files = (
        replace(file, steps=tuple(_redirected(step, rewritten.tensors) for step in file.steps))
        for file in plan.files
    )
    return replace(plan, files=tuple(files))


def _redirected(step: Step, tensors: Mapping[str, TensorInfo]) -> Step:
    made = tensors.get(step.name) if isinstance(step.action, Factor | Part) else None
    if made is not None:
        return replace(step, sources=(made,), action=Copy() if made.dtype == step.dtype else Cast())
    sources = tuple(tensors.get(source.name, source) for source in step.sources)
    if sources == step.sources:
        return step
    is_cast = isinstance(step.action, Copy) and sources[0].dtype != step.dtype
    return replace(step, sources=sources, action=Cast() if is_cast else step.action)


def _layers(rewriting: Rewriting, work: WorkFolder, progress: bool) -> Iterator[RewrittenLayer]:
    source, heads, ladder = rewriting.source, rewriting.heads, rewriting.ladder

    def done(index: int) -> RewrittenLayer | None:
        return _read(index, work)

    from headcount.running.placement import resolve_device  # imports transformers, as the next

    from ..calibrate.calibrated_layers import calibrated_layers
    from ..calibrate.without_text import layers_without_text

    layers = calibrated_layers(
        source,
        heads,
        ladder,
        rewriting.calibration,
        rewriting.calibration_tokens,
        done,
        progress,
        rewriting.calibration_sha256,
        rewriting.ranks,
        rewriting.mla,
        rewriting.chosen,
        rewriting.calibration_row_tokens,
        resolve_device(rewriting.device),
        _ready(rewriting, work),
    )
    if rewriting.calibration is None:
        layers = layers_without_text(source, layers, _by_weights(rewriting, work, done, progress))
    yield from layers


def _ready(rewriting: Rewriting, work: WorkFolder) -> int:
    """The layer behind those that an earlier run has finished from the first one on; 0 if none."""
    made = takewhile(lambda index: _name(index) in work.finished, sorted(rewriting.layers))
    return max(made, default=-1) + 1


def _by_weights(
    rewriting: Rewriting, work: WorkFolder, done: MadeBefore, progress: bool
) -> Iterator[RewrittenLayer]:
    """As if what layers read were white."""
    if rewriting.ranks:
        layers, what = layers_by_weights(rewriting, done), "latents"
    else:
        heads, ladder = rewriting.heads, rewriting.ladder
        layers = uncalibrated_layers(rewriting.source, heads, ladder, done, rewriting.chosen)
        what = "merging heads"
    count = len(rewriting.layers)
    made = sum(_name(index) in work.finished for index in rewriting.layers)
    with progress_bar(None, what, "layer", shown=progress, total=count, initial=made) as bar:
        for layer in layers:
            is_new = _name(layer.index) not in work.finished
            yield layer
            bar.update(is_new)


def _name(index: int) -> str:
    return f"{REWRITTEN}/{index:05}.safetensors"


def _write(rewriting: Rewriting, layer: RewrittenLayer, work: WorkFolder) -> None:
    tensors = {name: tensor.detach() for name, tensor in layer.tensors.items()}
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise BadValuesError(
                f"{rewriting.source.folder}: rewriting {name!r} gives NaN or infinity; nothing was"
                " kept"
            )
    file = OutputFile(
        name=_name(layer.index),
        metadata={},
        steps=tuple(
            make(name, _STORED[tensor.dtype], tuple(tensor.shape), 0.0)
            for name, tensor in tensors.items()
        ),
    )
    measured = {
        "layer": dict(layer.measured),
        "distinct": _distinct(rewriting.source, layer.index),
        "sources": _digests(rewriting.source, layer),
    }
    content = (raw_bytes(tensor) for tensor in tensors.values() if tensor.numel())
    _keep(work, file.name, chain([header_bytes(file)], content), measured, file)


def _distinct(source: ConversionSource, index: int) -> int:
    """How many K/V heads of the source's layer are no copies of their neighbours."""
    repeats, tensors = Repeats(), source.attention_map.attentions
    with SourceReader(source.checkpoint.files) as reader:
        for where in ((index, False), (index, True)):
            if where in tensors:
                for _, heads in key_value_heads(tensors[where], reader.tensor):
                    repeats.see(index, heads)
    return repeats.distinct(index)


def _digests(source: ConversionSource, layer: RewrittenLayer) -> dict[str, str]:
    """Those of the tensors in the source that the layer's take the place of, or were made of."""
    stored = source.checkpoint.tensors
    names = dict.fromkeys((*layer.made_of, *(n for n in layer.tensors if n in stored)))
    with SourceReader(source.checkpoint.files) as reader:
        found = {name: digest_of_bytes(raw_bytes(reader.tensor(stored[name]))) for name in names}
    return found


def _keep(
    work: WorkFolder,
    name: str,
    content: Iterable[bytes | memoryview],
    measured: object,
    file: OutputFile | None = None,
) -> None:
    with NewFile(work.temporary(name), lambda count: None) as out:
        for piece in content:
            out.write(piece)
        written = out.finish()
    if file is not None:
        check_written(out.path, file)
    work.keep(name, written, measured)


def _read(index: int, work: WorkFolder) -> RewrittenLayer | None:
    """A layer that an earlier run has finished."""
    finished = work.finished.get(_name(index))
    if finished is None:
        return None
    infos, files = _files([index], work)
    with SourceReader((), files) as reader:
        tensors = {info.name: reader.tensor(info) for info in infos}
    return RewrittenLayer(index=index, tensors=tensors, measured=finished.measured["layer"])


def _files(layers: Iterable[int], work: WorkFolder) -> tuple[list[TensorInfo], dict[str, ReadFile]]:
    """The tensors of rewritten layers, and their files by the names that the tensors give them."""
    headers = [read_header(work.place(_name(index))) for index in layers]
    tensors = [replace(t, file=str(header.path)) for header in headers for t in header.tensors]
    return tensors, {str(h.path): h.read for h in headers if h.read is not None}


def _found(work: WorkFolder) -> Rewritten:
    layers = work.finished[_ALL].measured["layers"]
    measured = {index: work.finished[_name(index)].measured for index in layers}
    infos, files = _files(layers, work)
    return Rewritten(
        tensors={info.name: info for info in infos},
        files=files,
        replaced={n: d for one in measured.values() for n, d in one["sources"].items()},
        measured={index: of_layer["layer"] for index, of_layer in measured.items()},
        distinct={index: of_layer["distinct"] for index, of_layer in measured.items()},
    )
