"""Weights that an engine leaves in the host's memory (--cpu-offload-gb).

Parameters of the layers of a rank go there one after another, in the order in which a layer has
them, until as many GiB as were asked for are reached: the last one may go beyond. Embeddings, the
output head and what stands outside of the layers stay (UVAOffloader of
vllm/model_executor/offloader/uva.py, before maybe_offload_to_cpu of model_executor/models/utils.py;
OffloaderV1 of sglang/srt/utils/offloader.py).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil

from headcount.arch.modules.module import Kind, Module
from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes

from ...budget import Term
from ...planned_model import PlannedModel
from ...request import Workload
from ...stage_bytes import stage_bytes, weighed_as_planned
from ..loaded_weights import stage_weights
from .spread import Spread

_GIB = 2**30
_OUTSIDE: tuple[Kind, ...] = ("embedding", "head", "tower")
# Parts that an engine loads as one parameter, in the order in which a layer has them.
_PARAMETERS = (("q", "k", "v", "qkv"), ("o",), ("gate", "up"), ("down",))


def offloaded(
    model: PlannedModel,
    work: Workload,
    weights: Sequence[Term],
    stages: tuple[int, ...],
    spread: Spread,
) -> Iterator[Term]:
    """The terms of `weights`, one a pipeline stage, without what goes to the host's memory. Raises
    HeadcountError where what a layer holds is not known."""
    asked = work.request.cpu_offload_gb
    if not asked:
        yield from weights
        return
    kinds = stage_bytes(model, work, stages)
    if kinds is None:
        raise HeadcountError(
            f"{model.model_id}: the config does not tell what its layers weigh, so what"
            " --cpu-offload-gb moves cannot be told"
        )
    largest, sizes = _parameters(model, work, spread)
    for term, held in zip(weights, kinds, strict=True):
        outside = ceil(sum(held.get(kind, 0) for kind in _OUTSIDE) / spread.tp)
        moved = min(_until(int(asked * _GIB), sizes), max(0, term.bytes - outside))
        yield term._replace(
            bytes=term.bytes - moved,
            formula=f"{term.formula} - {format_bytes(moved)} in the host's memory",
            error_bytes=term.error_bytes + (0 if moved == term.bytes - outside else largest),
        )


def moved_to_host(
    model: PlannedModel, work: Workload, stages: tuple[int, ...], spread: Spread
) -> tuple[Term, ...]:
    """What all ranks together have there; () where nothing is moved, or weighed."""
    request = work.request
    if not request.cpu_offload_gb or work.weights is None:
        return ()
    whole = tuple(stage_weights(model, work, stages=stages, spread=spread))
    left = offloaded(model, work, whole, stages, spread)
    moved = sum(before.bytes - after.bytes for before, after in zip(whole, left, strict=True))
    ranks = request.ranks // request.pp
    formula = f"--cpu-offload-gb {request.cpu_offload_gb:g} of each of {request.ranks} ranks"
    return (Term(key="offloaded", title="Weights", bytes=moved * ranks, formula=formula),)


def _until(asked: int, sizes: Sequence[int]) -> int:
    """Bytes of the first parameters that together reach `asked`."""
    total = 0
    for size in sizes:
        if total >= asked:
            break
        total += size
    return max(total, asked) if sizes else asked


def _parameters(model: PlannedModel, work: Workload, spread: Spread) -> tuple[int, list[int]]:
    """The largest parameter of a rank's layers, and all of them in order."""
    found = weighed_as_planned(model, work)
    parts = dict(spread.parts)
    inner = [(m, size) for m, size in found.modules if m.layer is not None] if found else []
    keyed = [
        (_key(module), ceil(size * parts.get(module.kind, 1 / spread.tp))) for module, size in inner
    ]
    keyed.sort(key=lambda pair: pair[0])
    sizes = [sum(size for _, size in group) for _, group in groupby(keyed, lambda pair: pair[0])]
    return max(sizes, default=0), sizes


def _key(module: Module) -> tuple[int, bool, str, int]:
    """Which layer a matrix is of, and which of its parameters; attention comes first."""
    is_mixer = module.kind in ("attention", "recurrent")
    place = next((n for n, own in enumerate(_PARAMETERS) if module.part in own), len(_PARAMETERS))
    return module.layer or 0, not is_mixer, module.kind, place
