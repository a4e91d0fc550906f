"""Whether the layers of a source can be rewritten as asked, and what a reader should know of it."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from headcount.model.latent_rank import kept_elements

from ..attention_map.attention_tensors import AttentionTensors, Where
from ..homes.home import Home
from ..merge.ladder import Ladder
from ..merge.method_rules import METHOD_RULES
from ..plan.refusals.merging import check_calibrated, check_mergeable
from ..plan.request import CALIBRATION_TOKENS, ConversionRequest
from ..plan.rewriting import Rewriting
from ..plan.source import ConversionSource
from .freedom import NotFree, limits_of

if TYPE_CHECKING:
    from ..calibrate.calibration_text import CalibrationText
    from ..calibrate.pairs.calibration_pairs import CalibrationPairs

    Rows = CalibrationText | CalibrationPairs

_SHARES = 32  # a latent of fewer elements than this part of what is kept was hardly meant


def plan_rewriting(
    source: ConversionSource,
    home: Home,
    pooled: tuple[int, ...],
    request: ConversionRequest,
) -> tuple[Rewriting | None, tuple[str, ...]]:
    """What is done before the heads of the layers `pooled` are, None: nothing; and what limits it.

    Reads headers, and the calibration text. Raises CannotConvertError, and HeadcountError for a
    text that is none.
    """
    heads, ladder = home.heads, request.ladder
    if home.ranks:
        return _latents(source, home, request)
    if ladder is None:
        return None, ()
    check_mergeable(source)
    check_calibrated(source, heads, request)
    found = source.attention_map.attentions
    changed = [where for where, own in heads.layers.items() if own.is_changed]
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
        calibration_row_tokens=request.calibration_row_tokens,
        device=request.device,
        tokens_read=0 if text is None else text.tokens,
        row_tokens=0 if text is None else text.row_tokens,
    )
    known = {index for index, _ in found} | heads.readers.keys()
    limits = limits_of(source, heads)
    return rewriting, (
        *_limits([limits[where] for where in changed], ladder),
        *_beyond(set(pooled) - known),
        *_few(source, request, text),
    )


def _latents(
    source: ConversionSource, home: Home, request: ConversionRequest
) -> tuple[Rewriting, tuple[str, ...]]:
    """Latents in place of keys and values."""
    text = _calibration(source, request)
    found = source.attention_map.attentions
    ladder = request.ladder or Ladder(seed=request.seed)
    rewriting = Rewriting(
        source=source,
        heads=home.heads,
        ladder=ladder,
        nbytes=_nbytes(source, {where: found[where] for where in home.ranks}, ladder),
        calibration=request.calibration,
        calibration_sha256=None if text is None else text.sha256,
        calibration_tokens=0 if text is None else _wanted_tokens(request),
        calibration_row_tokens=request.calibration_row_tokens,
        device=request.device,
        tokens_read=0 if text is None else text.tokens,
        row_tokens=0 if text is None else text.row_tokens,
        ranks=home.ranks,
        mla=home.mla,
    )
    return rewriting, (*_tiny(source, request, home.ranks), *_few(source, request, text))


def _tiny(
    source: ConversionSource, request: ConversionRequest, ranks: Mapping[Where, int]
) -> Iterator[str]:
    """A number of elements that was perhaps meant as a share."""
    size = request.latent
    if not isinstance(size, int) or size < 2:
        return
    kept = max(kept_elements(source.attention_map.mixers[where]) for where in ranks)
    if size * _SHARES <= kept:
        yield (
            f"--latent {size} keeps {size} of the {kept:,} elements, of keys and values, of a token"
            f" and layer: next to nothing; a share is written --latent 1/{size}"
        )


def _beyond(layers: Set[int]) -> Iterator[str]:
    if layers:
        yield (
            f"layers that the config does not count ({', '.join(map(str, sorted(layers)))}) are"
            " pooled by their mean"
        )


def _nbytes(
    source: ConversionSource, tensors: Mapping[Where, AttentionTensors], ladder: Ladder
) -> int:
    """Those of the attentions, and of one more matrix of each layer if MLPs are refitted, too."""
    sizes = {where: one.computed_itemsize for where, one in tensors.items()}
    total = sum(t.elements * sizes[w] for w, one in tensors.items() for t in one.tensors)
    if ladder.refit == "mlp":
        size = max(sizes.values(), default=4)
        for layer in {where[0] for where in tensors}:
            matrices = (
                t.elements
                for t in source.checkpoint.tensors.values()
                if f".{layer}." in t.name and len(t.shape) > 1
            )
            total += max(matrices, default=0) * size
    return total


def _calibration(source: ConversionSource, request: ConversionRequest) -> "Rows | None":
    if request.calibration is None:
        return None
    # These import transformers, which other plans do without.
    from headcount.running.placement import resolve_device

    from ..calibrate.calibration_text import planned_text
    from ..calibrate.pairs.calibration_pairs import planned_pairs

    asked = (source, request.calibration, _wanted_tokens(request), request.seed)
    row = request.calibration_row_tokens
    if source.reads_pairs:
        return planned_pairs(*asked, row_tokens=row, device=resolve_device(request.device))
    return planned_text(*asked, row_tokens=row)


def _wanted_tokens(request: ConversionRequest) -> int:
    return request.calibration_tokens or CALIBRATION_TOKENS


def _few(
    source: ConversionSource, request: ConversionRequest, text: "Rows | None"
) -> Iterator[str]:
    wanted = _wanted_tokens(request)
    if text is not None and text.found < wanted:
        yield f"the calibration text has {text.found:,} tokens, not {wanted:,}"
    row = request.calibration_row_tokens
    if text is not None and row is not None and text.row_tokens < row:
        why = f"the model takes no more, or the text has less than {4 * row:,}"
        if source.reads_pairs:
            why = "the model takes no more, or no target has as many"
        yield f"rows of calibration have {text.row_tokens:,} tokens, not {row:,}: {why}"


def _limits(limits: Sequence[NotFree], ladder: Ladder) -> Iterator[str]:
    """Each reason once, with how many attentions it holds for."""
    for what, sense in _meanings(ladder):
        reasons = [reason for one in limits if (reason := getattr(one, what)) is not None]
        for reason in dict.fromkeys(reasons):
            where = "" if reasons.count(reason) == len(limits) else f" in {reasons.count(reason)}"
            of = f" of {len(limits)} attentions" if where else ""
            yield f"{sense}{where}{of}: {reason}"


def _meanings(ladder: Ladder) -> Iterator[tuple[str, str]]:
    """What is asked for and may not be free, and what becomes of it where it is not."""
    if METHOD_RULES[ladder.method].turns:
        yield "keys", "keys are weighted, not turned"
        yield "values", "values are weighted, not turned"
    if ladder.grouping == "similar":
        yield "order", "neighbouring heads are merged, not similar ones"
    if ladder.temperature:
        yield "keys", "scores get no temperature"
