"""Each logged figure recomputed: the prediction, how far off it may be, whether both agree.

Tokens, blocks and concurrency are whole multiples of blocks: they agree where a number of blocks
that the logged memory allows gives exactly what is logged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.model.units import format_bytes

from ..budget import LOADED
from ..engines.start_log import Log, StartLog, start_logs
from ..plan import Plan, plan_model
from ..stored import is_weighed
from .start import Start

_GIB, HALF_STEP = 2**30, 0.005  # GiB that the rounding of a log hides
_MOST_BLOCKS = 100_000  # that are tried one by one
COUNTS = ("kv_tokens", "num_blocks", "concurrency")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """`predicted`, `low` and `high` are None where nothing is known to predict from, and then
    `agrees` is None too."""

    figure: str
    logged: float
    predicted: float | None
    low: float | None
    high: float | None
    agrees: bool | None
    why: str

    def document(self) -> dict[str, object]:
        return {
            "figure": self.figure,
            "logged": self.logged,
            "predicted": self.predicted,
            "low": self.low,
            "high": self.high,
            "agrees": self.agrees,
            "why": self.why,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes for the cache of each pipeline stage: the least, the likeliest and the most that the
    log, or else the budget, leaves open. A stage that logged nothing is taken for as large as
    needed, and counted in `unknown`. `words` say where it is from; what is not logged is an
    estimate."""

    low: tuple[int, ...]
    middle: tuple[int, ...]
    high: tuple[int, ...]
    words: str
    unknown: int = 0
    is_logged: bool = True


_PLENTY = 2**60


def reader_of(start: Start) -> StartLog:
    """How the engine logs a start; of one whose logs are not known, nothing more than others'."""
    engine = start.request.engine
    return start_logs().get(engine) or StartLog(engine=engine, looked_for="")


def memory_of(start: Start) -> Memory | None:
    """What the start was given; else from the cache memory of the log, which is rounded; else from
    the budget, with its error; None where there is none of them."""
    given = start.log.settings.get("kv_memory")
    if isinstance(given, int):
        each = (given,) * start.request.pp
        words = f"from the {given:,} bytes that the start was given"
        return Memory(low=each, middle=each, high=each, words=words)
    logged = start.log.figures.get("available_gib")
    if logged is not None:
        return _logged_memory(start, logged)
    if start.request.device is None or not is_weighed(start.model):
        return None
    plan = plan_model(start.model, start.request)
    low, middle, high = (
        tuple(size + d * plan.error_bytes for size in plan.available) for d in (-1, 0, 1)
    )
    words = "from the budget of the device, an estimate"
    return Memory(low=low, middle=middle, high=high, words=words, is_logged=False)


def _logged_memory(start: Start, least: float) -> Memory:
    step = HALF_STEP * int(start.log.settings.get("sizes_added", 1))
    stages = by_stage(start.log, "available_gib", start.request.tp)
    pp = start.request.pp
    if pp == 1 or not stages:
        known = dict.fromkeys(range(pp if not stages else 1), least)
    else:
        known = {stage: gib for stage, gib in stages.items() if stage < pp}
    pool = _with_memory(start, int(max(known.values(), default=0.0) * _GIB)).pool
    ends = [
        tuple(
            pool.unlogged(int((known[stage] + d) * _GIB)) if stage in known else _PLENTY
            for stage in range(pp)
        )
        for d in (-step, 0, step)
    ]
    words = " and ".join(f"{gib:g}" for _, gib in sorted(known.items()))
    if pp == 1 or not stages:
        words = f"{least:g}"
    of = f" of stages {', '.join(str(n) for n in sorted(known))}" if pp > 1 and stages else ""
    return Memory(
        low=ends[0],
        middle=ends[1],
        high=ends[2],
        words=f"from the logged {words} GiB{of}, rounded to 0.01",
        unknown=pp - len(known),
    )


def by_stage(log: Log, name: str, tp: int) -> dict[int, float]:
    """The least of each pipeline stage whose ranks say which they are."""
    found: dict[int, float] = {}
    for rank, values in log.ranks.items():
        stage = rank.stage if rank.stage is not None else None
        if stage is None and rank.place is not None:
            stage = rank.place // tp
        if stage is not None and name in values:
            found[stage] = min(values[name], found.get(stage, values[name]))
    return found


def _with_memory(start: Start, size: int) -> Plan:
    return plan_model(start.model, replace(start.request, kv_memory=size))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """The counts of the cache by the rules: at the least, the likeliest and the most memory, and
    `agreeing` those that the log's are found among."""

    rows: Mapping[str, tuple[float, float, float]]
    agreeing: frozenset[str]


def counts_of(start: Start, memory: Memory, logged: Mapping[str, float]) -> Counts:
    """Of the figures `logged`."""
    plan = _with_memory(start, max(0, memory.middle[0]))
    ends = (memory.low, memory.middle, memory.high)
    ends_of = {name: _ends(plan, name, ends) for name in logged}
    rows = {name: found for name, found in ends_of.items() if found is not None}
    numbers = _numbers_of_blocks(start, plan, ends)
    if numbers is None:
        agreeing = {n for n, (low, _, high) in rows.items() if low <= logged[n] <= high}
        return Counts(rows=rows, agreeing=frozenset(agreeing))
    context = plan.workload.context
    fitting = {name: set[int]() for name in rows}
    for blocks in numbers:
        for name in fitting:
            if _is_logged_for(plan, name, blocks, context, logged[name]):
                fitting[name].add(blocks)
    common = set.intersection(*fitting.values()) if fitting else set()
    agreeing = {n for n, found in fitting.items() if found} if not common else set(fitting)
    if len(agreeing) == len(fitting) > 1 and not common:
        agreeing.discard("concurrency")  # they are not of one number of blocks
    return Counts(rows=rows, agreeing=frozenset(agreeing))


def _ends(
    plan: Plan, name: str, ends: Sequence[tuple[int, ...]]
) -> tuple[float, float, float] | None:
    values = [_value(plan, name, available) for available in ends]
    low, middle, high = values
    if low is None or middle is None or high is None:
        return None
    return low, middle, high


def _value(plan: Plan, name: str, available: tuple[int, ...]) -> float | None:
    context = plan.workload.context
    if name == "kv_tokens":
        return plan.pool.kv_tokens(available, context)
    if name == "num_blocks":
        return plan.pool.num_blocks(available)
    return round(plan.pool.concurrency(available, context), 2)


def _numbers_of_blocks(start: Start, plan: Plan, ends: Sequence[tuple[int, ...]]) -> range | None:
    """Those that the memory allows, or the one that the start was told; None where tokens do not
    follow from blocks, or there are too many to try."""
    if plan.pool.of_blocks(1, plan.workload.context) is None:
        return None
    if told := int(start.log.settings.get("overridden", 0)):
        return range(told, told + 1)
    low, high = plan.pool.num_blocks(ends[0]), plan.pool.num_blocks(ends[2])
    if low is None or high is None or high - low > _MOST_BLOCKS:
        return None
    return range(low, high + 1)


def _is_logged_for(plan: Plan, name: str, blocks: int, context: int, logged: float) -> bool:
    if name == "num_blocks":
        return blocks == int(logged)
    found = plan.pool.of_blocks(blocks, context)
    assert found is not None
    tokens, concurrency = found
    if name == "kv_tokens":
        return tokens == int(logged)
    return f"{concurrency:.2f}" == f"{logged:.2f}"


def logged_counts(log: Log) -> dict[str, float]:
    return {name: log.figures[name] for name in COUNTS if name in log.figures}


def figures(start: Start) -> Iterator[Figure]:
    """Every figure that the log has, recomputed."""
    log = start.log
    logged, memory = logged_counts(log), memory_of(start)
    if logged:
        yield from _counts(start, memory, logged)
    if "kv_gib" in log.figures:
        yield _cache(start)
    if "token_bytes" in log.figures:
        yield _token(start)
    if "weights_gib" in log.figures:
        yield _weights(start)
    if "available_gib" in log.figures:
        yield _available(start)


def _counts(start: Start, memory: Memory | None, logged: Mapping[str, float]) -> Iterator[Figure]:
    found = counts_of(start, memory, logged) if memory else None
    of_blocks = {} if memory else _of_each_other(start, logged)
    for name, value in logged.items():
        shown = value if name == "concurrency" else int(value)
        if memory is None or found is None:
            yield of_blocks.get(name, _unknown(name, shown, WITHOUT_MEMORY))
        elif name not in found.rows:
            yield _unknown(name, shown, "the engine has no blocks")
        else:
            low, middle, high = found.rows[name]
            agrees: bool | None = name in found.agreeing
            why = memory.words
            if memory.unknown and not agrees and value < low:
                agrees = None
                why += f"; {memory.unknown} other stages log no memory, and the least decides"
            elif not agrees and _may_be_another_ranks(start, value, low):
                agrees = None
                why += "; the rank with the least memory decides, and not all log theirs"
            yield Figure(
                figure=name,
                logged=shown,
                predicted=middle,
                low=low,
                high=high,
                agrees=agrees,
                why=why,
            )


WITHOUT_MEMORY = "neither cache memory nor a device is known: --device"
_ALIKE = 0.95  # of the memory of ranks that share the layers


def _may_be_another_ranks(start: Start, logged: float, low: float) -> bool:
    """Whether a rank that logs nothing may have had a little less."""
    ranks = start.request.tp * start.request.dp
    logging = sum("available_gib" in values for values in start.log.ranks.values())
    return max(1, logging) < ranks and low * _ALIKE <= logged < low


def _of_each_other(start: Start, logged: Mapping[str, float]) -> dict[str, Figure]:
    """Counts that follow from another one's number of blocks, of a log that says no memory."""
    plan = _with_memory(start, _PLENTY)
    blocks, context = _blocks_of(plan, logged), plan.workload.context
    if blocks is None or (found := plan.pool.of_blocks(blocks, context)) is None:
        return {}
    source = "num_blocks" if "num_blocks" in logged else "kv_tokens"
    values = {"kv_tokens": float(found[0]), "concurrency": round(found[1], 2)}
    why = f"from the logged {int(logged[source]):,} {_COUNTED_IN[source]}"
    return {
        name: Figure(
            figure=name,
            logged=logged[name],
            predicted=value,
            low=value,
            high=value,
            agrees=_is_logged_for(plan, name, blocks, context, logged[name]),
            why=why,
        )
        for name, value in values.items()
        if name in logged and name != source
    }


_COUNTED_IN = {"num_blocks": "blocks", "kv_tokens": "tokens"}
_TELLING_STEP = 256  # tokens that a block more is worth: others are met by chance once in so many


def is_of_whole_blocks(start: Start) -> bool | None:
    """Whether some number of blocks has exactly the logged tokens; None where that tells nothing,
    since every few tokens are those of one."""
    logged, plan = logged_counts(start.log), _with_memory(start, _PLENTY)
    tokens, context = logged.get("kv_tokens"), plan.workload.context
    many, more = (plan.pool.of_blocks(1000 + n, context) for n in (0, 1))
    if tokens is None or many is None or more is None or more[0] - many[0] < _TELLING_STEP:
        return None
    return _blocks_of(plan, {"kv_tokens": tokens}) is not None


def _blocks_of(plan: Plan, logged: Mapping[str, float]) -> int | None:
    """Those that are logged, or that have as many tokens as are; None where there are none."""
    if "num_blocks" in logged:
        return int(logged["num_blocks"])
    if "kv_tokens" not in logged or plan.pool.of_blocks(1, plan.workload.context) is None:
        return None
    wanted, low, high = int(logged["kv_tokens"]), 0, int(logged["kv_tokens"])
    while low < high:
        middle = (low + high) // 2
        found = plan.pool.of_blocks(middle, plan.workload.context)
        assert found is not None
        low, high = (middle + 1, high) if found[0] < wanted else (low, middle)
    found = plan.pool.of_blocks(low, plan.workload.context)
    return low if found is not None and found[0] == wanted else None


def _unknown(name: str, logged: float, why: str) -> Figure:
    return Figure(
        figure=name, logged=logged, predicted=None, low=None, high=None, agrees=None, why=why
    )


def _between(name: str, logged: int, predicted: int, error: int, why: str) -> Figure:
    return Figure(
        figure=name,
        logged=logged,
        predicted=predicted,
        low=predicted - error,
        high=predicted + error,
        agrees=abs(predicted - logged) <= error,
        why=why,
    )


def step_bytes(log: Log, name: str) -> int:
    """What rounding hides of a size."""
    return round(log.steps.get(name, HALF_STEP) * _GIB)


# An engine logs caches and weights wherever they lie.
_WHOLE: Mapping[str, Any] = {
    **{"gpu_layers": None, "n_cpu_moe": None, "cpu_moe": False, "no_kv_offload": False},
}


def _cache(start: Start) -> Figure:
    """What an engine keeps for the context that it was started with, states included."""
    log = start.log
    logged = round((log.figures["kv_gib"] + log.figures.get("states_gib", 0.0)) * _GIB)
    whole = replace(start.request, **_WHOLE)
    plan = _with_memory(replace(start, request=whole), _PLENTY)
    if start.request.context is None and plan.kv_cache_bytes:
        tokens = max(1, round(logged * plan.workload.context / plan.kv_cache_bytes))
        why = f"the log says no context (--context): so large is that of about {tokens:,} tokens"
        return _unknown("kv_cache_bytes", logged, why)
    error = step_bytes(log, "kv_gib") + 2**10
    batch = f" of {plan.workload.batch_size} sequences" if plan.workload.batch_size > 1 else ""
    why = f"{plan.workload.context:,} tokens{batch}, cache of {plan.workload.kv_dtype}"
    return _between("kv_cache_bytes", logged, plan.kv_cache_bytes, error, why)


def _token(start: Start) -> Figure:
    plan = _with_memory(start, _PLENTY)
    logged, predicted = int(start.log.figures["token_bytes"]), plan.pool.bytes_per_token(None)
    why = f"a token of all layers on a rank, cache of {plan.workload.kv_dtype}"
    return _between("rank_cache_bytes_per_token", logged, predicted, 0, why)


def _weights(start: Start) -> Figure:
    """The rank's weights need no device: any gives the same. Of stages that of the least counts."""
    from ..devices import parse_device

    logged = round(start.log.figures["weights_gib"] * _GIB)
    if start.log.settings.get("platform") == "npu":
        return _unknown("weights_bytes", logged, "NPUs lay weights out in a way of their own")
    of_file = _of_file(start.log, logged)
    if of_file is not None and not start.model.config:  # nothing else is known of its weights
        return of_file
    device = start.request.device or parse_device("80GiB")
    request = replace(start.request, device=device, kv_memory=None, **_WHOLE)
    if not is_weighed(start.model):
        return _unknown("weights_bytes", logged, "the model's parameters are not known")
    plan = plan_model(start.model, request)
    terms = min(
        (budget.loaded for budget in plan.budgets), key=lambda terms: sum(t.bytes for t in terms)
    )
    error = sum(term.error_bytes for term in terms) + step_bytes(start.log, "weights_gib")
    host = sum(part.bytes for part in plan.host_terms if part.key == "weights")  # logged, too
    words = ", ".join(term.formula for term in terms)
    predicted = sum(term.bytes for term in terms) + host
    if start.log.settings.get("without_head") and (head := _head_bytes(plan)):
        predicted -= head
        words += f", without the output head of {head:,} B"
    found = _between("weights_bytes", logged, predicted, error, words)
    if not found.agrees and start.format_is_assumed and _may_be(start, logged):
        why = (
            f"files of {start.called} are not known here, and which of their matrices are narrow"
            f" differs: {format_bytes(predicted)} if as {start.model.model_id} is: {words}"
        )
        found = _unknown("weights_bytes", logged, why)
    return of_file if of_file is not None and of_file.agrees and not found.agrees else found


def _may_be(start: Start, logged: int) -> bool:
    """Whether a rank's weights may be as many bytes with some matrices of 4 bit and others of 16,
    embeddings among them."""
    whole = (start.model.spec.parameters or 0) // start.request.ranks
    return whole // 2 < logged < 2 * whole


def _head_bytes(plan: Plan) -> int:
    """Of a rank's part of an output head that is not the embedding."""
    spec = plan.model.spec
    if spec.tie_word_embeddings or not spec.vocab_size:
        return 0
    return spec.vocab_size * spec.hidden_size * plan.workload.compute_bits // 8 // plan.request.tp


def _of_file(log: Log, logged: int) -> Figure | None:
    """By the size of the file, as the log has it: what is loaded is that, or that on the device,
    and a copy of the embedding beside it. None where the log has no size."""
    gib = log.figures.get("file_gib")
    if gib is None:
        return None
    size, error = round(gib * _GIB), round(HALF_STEP * _GIB) + step_bytes(log, "weights_gib")
    placed = round(log.figures.get("on_device_gib", 0.0) * _GIB)
    copied = logged - placed if abs(placed - size) <= error else 0
    words = f"the file has {gib:.2f} GiB by the log's own account"
    words += f", and {copied / _GIB:.2f} lie in the host's memory as well" if copied else ""
    return _between("weights_bytes", logged, size + copied, error, words)


def _available(start: Start) -> Figure:
    """From what the log itself says was taken, where it says all; else what it says in place of
    estimates."""
    log, name = start.log, "available_kv_bytes"
    logged = round(log.figures["available_gib"] * _GIB)
    own = reader_of(start).own_account(log, start.request)
    if own is not None:
        error = round(HALF_STEP * (own.addends + 1) * _GIB)
        return _between(name, logged, round(own.gib * _GIB), error, own.words)
    if start.request.device is None:
        return _unknown(
            name, logged, "the log names no device to hold it against: --device NAME or a size"
        )
    if not is_weighed(start.model):
        return _unknown(name, logged, "the model's parameters are not known")
    plan = plan_model(start.model, start.request)
    logged = plan.pool.unlogged(logged)
    available, error, taken = with_logged_terms(start, plan)
    allowed = plan.budget.allowed if plan.budget else None
    why = f"{allowed.formula if allowed else ''}, less {taken} GiB"
    return _between(name, logged, available, error + round(HALF_STEP * _GIB), why)


def with_logged_terms(start: Start, plan: Plan) -> tuple[int, int, str]:
    """What is left for the cache, how far off that may be, and the terms in words: those that the
    log says stand in place of estimates, whose bars are for all that they stand beside."""
    log, logged_as = start.log, reader_of(start).terms
    available, error, words = plan.available_bytes, plan.error_bytes, []
    for term in plan.taken:
        gib = next(
            (log.figures[n] for n, key in logged_as if key == term.key and n in log.figures), None
        )
        if gib is None and term.key in LOADED and "weights_gib" in log.figures:
            available += term.bytes  # among the weights that are logged
            continue
        if gib is None:
            words.append(f"{term.title.lower()} {term.bytes / _GIB:.2f}")
            continue
        available += term.bytes - round(gib * _GIB)
        words.append(f"{term.title.lower()} {gib:.2f} (logged)")
    return available, error, ", ".join(words)
