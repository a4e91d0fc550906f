"""Why figures may disagree: the one other setting with which none would.

A setting explains the counts of the cache only if one number of blocks, of those that the logged
memory allows, gives all of them exactly, and the weights that agreed agree still.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from headcount.model.errors import HeadcountError

from ..engines.engine import check_options, find_engine
from ..parallel import check_tp
from ..plan import check_ranks, plan_model
from .figures import (
    COUNTS,
    WITHOUT_MEMORY,
    Figure,
    counts_of,
    figures,
    is_of_whole_blocks,
    logged_counts,
    memory_of,
    reader_of,
)
from .start import VERSIONS, Start

_GIB = 2**30
_NAMED = 3  # explanations that are named where several would do


def explained(start: Start) -> list[Figure]:
    """The figures of the log, with the reason for a disagreement in `why`."""
    found = list(figures(start))
    wrong = [figure for figure in found if figure.agrees is False]
    reason = _counts(start, found) if any(f.figure in COUNTS for f in wrong) else ""
    found = [
        figure if figure.agrees is not False else _with_reason(start, figure, reason)
        for figure in found
    ]
    if any(f.figure == "kv_tokens" and f.why == WITHOUT_MEMORY for f in found):
        return _without_memory(start, found)
    return found


def _without_memory(start: Start, found: Sequence[Figure]) -> list[Figure]:
    """Tokens of a log that says no memory are still those of whole blocks, or of none."""
    if is_of_whole_blocks(start) is not False:
        return list(found)
    others = (words for words, other in _others(start) if is_of_whole_blocks(other))
    named = list(islice(others, _NAMED))
    why = "no whole number of blocks has so many tokens"
    why += f"; it has with {', or '.join(named)}" if named else " with any one setting changed"
    return [
        replace(figure, why=why) if figure.figure == "kv_tokens" else figure for figure in found
    ]


def _with_reason(start: Start, figure: Figure, counts: str) -> Figure:
    if figure.figure in COUNTS:
        reason = counts or _unexplained(figure)
    elif figure.figure == "weights_bytes":
        reason = _weights(figure)
    elif figure.figure == "available_kv_bytes":
        reason = _available(start, figure)
    else:
        reason = _unexplained(figure)
    return replace(figure, why=f"{reason}; predicted {figure.why}")


def _counts(start: Start, found: Sequence[Figure]) -> str:
    memory = memory_of(start)
    if memory is not None and not memory.is_logged:
        return (
            "outside the bar of an estimate, from which nothing follows exactly: the log does not"
            " say what the cache got"
        )
    agreed = any(f.figure == "weights_bytes" and f.agrees for f in found)
    named = []
    for words, other in _others(start):
        if explains(other) and not (agreed and _moves_weights(start, other)):
            named.append(words)
        if len(named) == _NAMED:
            break
    return f"agrees with {', or '.join(named)}" if named else ""


def with_likelier_tp(start: Start) -> Start:
    """The start of one rank where no option says how many there are, its lines name more, and the
    counts are those of one: the names of processes are weaker than exact figures."""
    if not start.tp_is_guessed or not logged_counts(start.log) or explains(start):
        return start
    alone = replace(start, request=replace(start.request, tp=1))
    if explains(alone) or (_is_explained(alone) and not _is_explained(start)):
        return alone
    return start


def with_likelier_version(start: Start) -> Start:
    """By the rules of a version that give every count exactly, where no option and no line says
    which it was."""
    named = start.said & VERSIONS
    if named or not logged_counts(start.log) or explains(start):
        return start
    others = list(reader_of(start).other_counts(start.request))
    for words, changed in reversed(others):  # the newest first
        other = _with(start, **changed)
        if changed.keys() == {"version"} and explains(other):
            notes = [note for note in start.notes if "names no version" not in note]
            note = f"the log names no version: its figures follow from {words}"
            return replace(other, notes=(*notes, note))
    return start


def _is_explained(start: Start) -> bool:
    return any(explains(other) for _, other in _others(start))


def explains(other: Start) -> bool:
    """Whether all counts of the log follow from the memory under this start."""
    memory, logged = memory_of(other), logged_counts(other.log)
    if memory is None or not memory.is_logged:  # an estimate's bar holds many counts
        return False
    found = counts_of(other, memory, logged)
    return bool(found.rows) and found.agreeing == frozenset(logged)


def _moves_weights(start: Start, other: Start) -> bool:
    return start.request.tp != other.request.tp


def _unexplained(figure: Figure) -> str:
    if not figure.predicted:
        return "by the rules nothing is left here"
    ratio = figure.logged / figure.predicted
    return (
        f"{ratio:.3f} of what the rules give; no one other cache type, tp, block size or version of"
        " the rules explains it alone"
    )


def _others(start: Start) -> Iterator[tuple[str, Start]]:
    """The same start with one setting changed, the likeliest first."""
    request = start.request
    for kv_dtype in (*find_engine(request.engine).narrower_caches, "auto"):
        yield f"--kv-dtype {kv_dtype}", _with(start, kv_dtype=kv_dtype)
    for tp in (1, 2, 4, 8):
        if tp != request.tp:
            yield f"--tp {tp}", _with(start, tp=tp)
    for size in (16, 32, 64, 128):
        if size != request.block_size:
            yield f"--block-size {size}", _with(start, block_size=size)
    for words, changed in reader_of(start).other_counts(request):
        yield words, _with(start, **changed)


def _with(start: Start, **changed: object) -> Start:
    """The same start where the change is none, or is not possible: it explains nothing then."""
    request = replace(start.request, **changed)  # type: ignore[arg-type]
    try:
        check_tp(start.model.spec, request.tp, start.model.model_id)
        check_options(find_engine(request.engine), request)
        check_ranks(request)
    except HeadcountError:
        return start
    return replace(start, request=request)


def _weights(figure: Figure) -> str:
    assert figure.predicted is not None
    ratio = figure.logged / figure.predicted
    if 0.45 < ratio < 0.6:
        return "half: the weights are stored in 8 bit, or twice as many ranks share them"
    if 0.2 < ratio < 0.35:
        return "a quarter: the weights are stored in 4 bit, or more ranks share them"
    if 1.8 < ratio < 2.2:
        return "double: half as many ranks share them, or they are stored wider"
    return f"{ratio:.3f} of the parameters' bytes: other parts are loaded, or left out"


def _available(start: Start, figure: Figure) -> str:
    """By what the utilisation, the sampler or the number of sequences would have to be."""
    assert figure.predicted is not None
    missing = figure.logged - figure.predicted
    if start.request.device is None:
        return f"{missing / _GIB:+.2f} GiB: the log's own terms do not add up"
    for words, changed in reader_of(start).other_memory(start.said):
        plan = plan_model(start.model, _with(start, **changed).request)
        if abs(plan.available_bytes - figure.logged) <= plan.error_bytes:
            return f"agrees with {words}"
    plan = plan_model(start.model, start.request)
    planned = plan.utilisation or 0.0
    share = planned + missing / start.request.device.usable_memory
    said = "" if "utilisation" in start.said else ", which the log does not say,"
    if 0 < share <= 1:
        return f"the utilisation{said} would have to be {share:.3f}, not {planned:.3f}"
    return f"{missing / _GIB:+.2f} GiB: not explained by utilisation, sampler or graphs"
