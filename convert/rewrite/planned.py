"""Whether the layers of a source can be rewritten as asked, and what a reader should know of it."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from ..merge.ladder import Ladder
from ..plan.draft import HeadsByLayer, Where
from ..plan.errors import CannotConvertError
from ..plan.request import CALIBRATION_TOKENS, ConversionRequest
from ..plan.rewriting import Rewriting
from ..plan.source import Source
from .freedom import Limits, limits_of
from .tensors import AttentionTensors, attention_tensors

if TYPE_CHECKING:
    from ..calibrate.calibration_text import CalibrationText


def plan_rewriting(
    source: Source, heads: HeadsByLayer, pooled: tuple[int, ...], request: ConversionRequest
) -> tuple[Rewriting | None, tuple[str, ...]]:
    """What is done before the heads of the layers `pooled` are, None: nothing; and what limits it.

    Reads headers, and the calibration text. Raises CannotConvertError, and HeadcountError for a
    text that is none.
    """
    ladder = request.ladder
    if ladder is None:
        return None, ()
    found = attention_tensors(source)
    changed = {where: own for where, own in heads.layers.items() if own.is_changed}
    for where in changed:
        if where not in found:
            raise CannotConvertError(
                f"{source.folder}: it is not known where the heads of layer {where[0]} lie: only"
                " --method mean, first, medoid and random can do with that"
            )
    _refuse_uncalibrated(source, heads, request)
    tensors = {where: found[where] for where in changed}
    text = _calibration(source, request)
    rewriting = Rewriting(
        source=source,
        heads=heads,
        ladder=ladder,
        nbytes=_nbytes(source, tensors, ladder),
        calibration=request.calibration,
        calibration_sha256=None if text is None else text.sha256,
        calibration_tokens=0 if text is None else _wanted_tokens(request),
        tokens_read=0 if text is None else text.tokens,
    )
    known = {index for index, _ in found} | heads.readers.keys()
    limits = limits_of(source, found, heads)
    return rewriting, (
        *_limits([limits[where] for where in changed], ladder),
        *_beyond(set(pooled) - known),
        *_few(request, text),
    )


def _beyond(layers: Set[int]) -> Iterator[str]:
    if layers:
        yield (
            f"layers that the config does not count ({', '.join(map(str, sorted(layers)))}) are"
            " pooled by their mean"
        )


def _refuse_uncalibrated(source: Source, heads: HeadsByLayer, request: ConversionRequest) -> None:
    """Raises CannotConvertError for what is merged by its weights alone."""
    crossed = any(cross and own.is_changed for (_, cross), own in heads.layers.items())
    if request.calibration is None or not (crossed or heads.readers):
        return
    what = "cross-attention" if crossed else "layers that read another's keys and values"
    raise CannotConvertError(
        f"{source.folder}: has {what}, which --calibration cannot run layer by layer: use --method"
        " merge without it"
    )


def _nbytes(source: Source, tensors: Mapping[Where, AttentionTensors], ladder: Ladder) -> int:
    """Those of the attentions, and of one more matrix of each layer if MLPs are refitted, too."""
    total = sum(t.elements * one.dtype.itemsize for one in tensors.values() for t in one.tensors)
    if ladder.refit == "mlp":
        size = max((one.dtype.itemsize for one in tensors.values()), default=4)
        for layer in {where[0] for where in tensors}:
            matrices = (
                t.elements
                for t in source.checkpoint.tensors.values()
                if f".{layer}." in t.name and len(t.shape) > 1
            )
            total += max(matrices, default=0) * size
    return total


def _calibration(source: Source, request: ConversionRequest) -> "CalibrationText | None":
    if request.calibration is None:
        return None
    from ..calibrate.calibration_text import (
        planned_text,  # imports transformers, which other plans do without
    )

    return planned_text(source, request.calibration, _wanted_tokens(request), request.seed)


def _wanted_tokens(request: ConversionRequest) -> int:
    return request.calibration_tokens or CALIBRATION_TOKENS


def _few(request: ConversionRequest, text: "CalibrationText | None") -> Iterator[str]:
    wanted = _wanted_tokens(request)
    if text is not None and text.found < wanted:
        yield f"the calibration text has {text.found:,} tokens, not {wanted:,}"


def _limits(limits: Sequence[Limits], ladder: Ladder) -> Iterator[str]:
    """Each reason once, with how many attentions it holds for."""
    for what, sense in _meanings(ladder):
        reasons = [reason for one in limits if (reason := getattr(one, what)) is not None]
        for reason in dict.fromkeys(reasons):
            where = "" if reasons.count(reason) == len(limits) else f" in {reasons.count(reason)}"
            of = f" of {len(limits)} attentions" if where else ""
            yield f"{sense}{where}{of}: {reason}"


_TURNING = ("align", "merge")


def _meanings(ladder: Ladder) -> Iterator[tuple[str, str]]:
    """What is asked for and may not be free, and what becomes of it where it is not."""
    if ladder.method in _TURNING:
        yield "keys", "keys are weighted, not turned"
        yield "values", "values are weighted, not turned"
    if ladder.grouping == "similar":
        yield "order", "neighbouring heads are merged, not similar ones"
    if ladder.temperature:
        yield "keys", "scores get no temperature"
