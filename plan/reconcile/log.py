"""What a start-up log says: figures of memory, the settings that they came of, what it died of."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from ..engines.registry import SERVING
from ..engines.start_log import (
    QUOTED,
    SIZE,
    FailureLine,
    Log,
    LogLine,
    Rank,
    Setting,
    StartLog,
    number,
    start_logs,
)
from .reading import FoundLine, lines_with

_LOGS = tuple(start_logs().values())
LOOKED_FOR = "; ".join(log.looked_for for log in _LOGS)
_STARTS = tuple(words for log in _LOGS for words in log.starts)
_OF_ONE_START = tuple(name for log in _LOGS for name in log.of_one_start)
_NO_FIGURES = tuple(words for log in _LOGS for words in log.no_figures)
_NO_SETTINGS = tuple(words for log in _LOGS for words in log.no_settings)
_TOLD = tuple(words for log in _LOGS for words in log.told)
_SETTINGS = {name: ours for log in _LOGS for name, ours in log.settings.items()}

_GENERAL, _TOLD_TRUST, _FIRM = 1, 2, 3
# What stands between a name and its value. Names that are words, too, are settings before a colon
# only in quotes, and before ` = ` only where their value is: code in a traceback assigns to them.
_WORDS = ("model", "dtype", "quantization")
_BETWEEN = r"['\"]?=|['\"]: {0,8}"
_OF_WORDS, _OF_OTHERS = rf"{_BETWEEN}| = (?=['\"])", rf"{_BETWEEN}|: {{1,8}}| = "
# One pattern for each name, since few are in a line.
_SETTING = {
    name: re.compile(
        rf"(?<![A-Za-z_.-]){name}(?:{_OF_WORDS if name in _WORDS else _OF_OTHERS}){QUOTED}",
        re.ASCII,
    )
    for name in _SETTINGS
}
_OPTIONS = {
    **{name.replace("_", "-"): ours for name, ours in _SETTINGS.items()},
    **_SETTINGS,
    **{"tp": "tp", "pp": "pp", "dp": "dp", "ep": "ep_size", "tensor-parallel": "tp"},
}
_OPTION = re.compile(rf"--({'|'.join(_OPTIONS)})(?:[ =]{{1,8}}|['\"], ?){QUOTED}", re.ASCII)
_SHORT = re.compile(r" -(tp|pp|dp|dcp)[ =]{1,4}([0-9]{1,4})\b")
_FLAGS = re.compile(
    r"--(enforce-eager|disable-hybrid-kv-cache-manager|enable-expert-parallel|enable-lora"
    r"|fully-sharded-loras|enable-dp-attention|kv-unified|no-kv-offload|swa-full|cpu-moe)\b"
)
_NOT = {
    "caches_prefixes": "--no-enable-prefix-caching",
    "async_scheduling": "--no-async-scheduling",
}
# A configuration inside a line's own: its model is the draft's.
_SPECULATIVE = re.compile(
    r"speculative[_-]config['\"]?\s?[=:]?\s?['\"]?(?:SpeculativeConfig\([^)]{0,2000}\)"
    r"|\{[^}]{0,2000}\})"
)
_DRAFTED = re.compile(r"num_spec(?:ulative)?_tokens['\"\\]*\s?[=:]\s?([0-9]{1,3})")
_METHOD = re.compile(r"(?<![A-Za-z_])method['\"\\]*\s?[=:]\s?['\"\\]*([A-Za-z0-9_]{1,40})")
_DRAFT = re.compile(
    r"(?<![A-Za-z_])(?:draft_)?model['\"\\]*\s?[=:]\s?['\"\\]*([^\s'\",)}\\]{1,200})"
)
_LOOKUP = re.compile(r"(prompt_lookup_m(?:ax|in))['\"\\]*\s?[=:]\s?([0-9]{1,3})")
# Names of processes: (Worker_PP1_TP0 pid=7), (…Worker rank=3 pid=7), [… PP0 TP1].
_STAGE = re.compile(r"[_ \[(]PP([0-9]{1,3})\b|[_ \[(]PP([0-9]{1,3})_")
_PLACE = re.compile(r"\([A-Za-z]{0,12}Worker[A-Za-z]{0,12}[ _][^)]{0,40}?rank[= ]([0-9]{1,4})")
_OF_TP = re.compile(r"[_ \[(]TP([0-9]{1,3})(?=[_ \])])")
_GPU = re.compile(
    r"(?:GPU|Device) +[0-9](?:-[0-9]+)?: +((?:NVIDIA|AMD|Tesla|GeForce) [^\n,(]{2,60})"
)
_OUT_OF_MEMORY = FailureLine(
    "memory",
    LogLine(
        "ut of memory. Tried to allocate",
        rf"Tried to allocate {SIZE}\.? (?:GPU ([0-9]+) has a total capac(?:i)?ty of {SIZE} of which"
        rf" {SIZE} is free\.(?:.{{0,1000}}?this process has {SIZE} memory in use)?"
        rf"(?:.{{0,1000}}?Of the allocated memory {SIZE} is allocated by PyTorch)?"
        rf"|\([GNX]PU [0-9]+; {SIZE} total capacity; {SIZE} already allocated;"
        rf" (?:{SIZE.replace('(', '(?:', 1)} current active; )?{SIZE} free)?",
        *("tried", "device", "capacity", "free", "used", "allocated"),
        *("old_capacity", "old_allocated", "old_free"),
    ),
)

# Of which nothing more is said.
_FULL = FailureLine("memory", LogLine("rror: CUDA error: out of memory", "CUDA error: out of"))


def _int(text: str) -> int:
    """As engines read a number of tokens: 32k is 32,000 and 32K 32,768."""
    for unit, size in (("k", 1000), ("K", 1024), ("m", 10**6), ("M", 2**20)):
        if text.endswith(unit):
            return int(float(text[:-1]) * size)
    return int(text.replace("_", ""))


def _positive(text: str) -> int:
    found = _int(text)
    if found < 0:
        raise ValueError("chosen by the engine")
    return found


_READERS: dict[str, Callable[[str], Setting]] = {
    **dict.fromkeys(("context", "tp", "pp", "dcp", "pcp", "block_size", "max_num_seqs"), _positive),
    **{"max_num_batched_tokens": _positive, "n_ctx": _positive, "gpu_layers": _positive},
    **dict.fromkeys(("kv_memory", "dp", "ep_size", "max_loras", "speculated", "steps"), _positive),
    **dict.fromkeys(("num_redundant_experts", "topk", "max_total_tokens"), _positive),
    **dict.fromkeys(("n_seq_max", "n_cpu_moe", "ubatch_size"), _positive),
    **{"max_lora_rank": _positive, "cpu_offload_gb": float, "utilisation": float},
}
_Reader = Callable[[Log, str], None]
_REPEATED, _REMEMBERED = 64, 50_000  # a line that a start repeats more often says nothing new
# Every setting's name has one of these in it.
_SETTING_PARTS = (
    *("odel", "max_", "_size", "dtype", "quantization", "--", "tilization", "enforce_eager"),
    *("prefix_caching", "mamba_", "mem_fraction", "context_len", "hybrid_kv"),
    *("cache_memory_bytes", "async_sched", "lora", "offload", "expert_parallel"),
)


def read_log(name: str) -> Log:
    """The last start in the log `name` (- for standard input) that says something of its memory,
    since people paste parts of a log in any order; nothing in it is run or trusted beyond its
    numbers. What is read is what any engine logs.

    Raises HeadcountError for a file that cannot be read.
    """
    return _log_of(lines_with(name, tuple(_by_part())))


def log_of_lines(lines: Iterable[str]) -> Log:
    """The same of lines at hand."""
    parts = tuple(_by_part())
    found = (FoundLine(line, [n for n, part in enumerate(parts) if part in line]) for line in lines)
    return _log_of(found)


def _log_of(lines: Iterable[FoundLine]) -> Log:
    log, by_part = Log(engine=SERVING), tuple(_by_part().values())
    times: dict[int, int] = {}  # that a line was read, by its hash
    for line, parts in lines:
        if (count := times.get(key := hash(line), 0)) >= _REPEATED:
            continue
        if len(times) >= _REMEMBERED:
            times.clear()
        times[key] = count + 1
        words = (entry for part in parts for entry in by_part[part] if entry.words in line)
        readers = dict.fromkeys(entry.read for entry in sorted(words))
        if _begin in readers:
            times.clear()
        for read in readers:
            read(log, line)
    log.end()
    for each in _LOGS:
        if each.engine in (log.tellers or {each.engine}):
            each.finish(log)
    if len(log.tellers) == 1:
        (log.engine,) = log.tellers
    return log


class _Entry(NamedTuple):
    """What reads a line that has `words`; `place` is its turn."""

    place: int
    words: str
    read: _Reader


# Parts of many of the words, which lines that a server prints while it serves have not: a block of
# the log is searched for these few, and a line for the words only where it has a part of them.
_PARTS = (
    *("memory", " took", "blocks", "oncurrency", "KV cache size", "KV cache is", "ersion", "llm"),
    *("LLM", "glang", "GLang", "llama_", "peak ", "buffer size", "Load weight", "KV self", "odel"),
    *("max_", "_size", "dtype", "quantization", "--", "tilization", "prefix_caching", "mamba_"),
    *("mem_fraction", "mem-fraction", "context_len", "attention", "weight", "FlashInfer"),
    *("general.", "on startup", "paged K", "paged k", "ggml_", "Hybrid", "hybrid"),
    *("kv size", "kv cache", "is less than", "graph end", "primary", "GPU 0", "Device 0"),
    *("n_ctx ", "n_seq_max ", "speculative", "Allocate"),
)


@lru_cache(maxsize=1)
def _by_part() -> dict[str, tuple[_Entry, ...]]:
    """Every reader below a part of its words; words without one are their own."""
    found: dict[str, list[_Entry]] = {}
    for place, (words, read) in enumerate(_all_readers()):
        part = next((part for part in _PARTS if part in words), words)
        found.setdefault(part, []).append(_Entry(place, words, read))
    return {part: tuple(entries) for part, entries in found.items()}


def _all_readers() -> Iterator[tuple[str, _Reader]]:
    for words in _STARTS:
        yield words, _begin
    for each in _LOGS:
        for words in each.signs:
            yield words, partial(_sign, each)
        for line in each.figures:
            yield line.words, partial(_read_figures, line, each.engine)
        for line in each.numbers:
            yield line.words, partial(_read_number, line)
        for trust, line in enumerate(reversed(each.versions), 1):
            yield line.words, partial(_read_version, line, trust)
        for line in each.names:
            yield line.words, partial(_read_name, line)
        for words, read in each.others:
            yield words, partial(_read_other, read, each.engine)
        for words, phase in each.phases:
            yield words, partial(_read_phase, each.engine, phase)
        for words in each.serves:
            yield words, _serves
        for failure in each.failures:
            yield failure.line.words, partial(_read_failure, failure, each.engine)
    for failure in (_OUT_OF_MEMORY, _FULL):
        yield failure.line.words, partial(_read_failure, failure, None)
    for words in (*_SETTING_PARTS, *_TOLD):
        yield words, _read_settings
    yield "speculative", _read_speculation
    for words in ("GPU 0", "Device 0"):
        yield words, _read_device


def _begin(log: Log, line: str) -> None:
    log.begin()
    for name in _OF_ONE_START:
        log.settings.pop(name, None)
        log.trust.pop(name, None)


def _read_phase(engine: str, phase: str, log: Log, line: str) -> None:
    """Of words of a traceback that say where it was those count that it ends with; other engines
    have functions of the same names."""
    if log.engine == engine:
        log.settings["phase"] = phase


def _serves(log: Log, line: str) -> None:
    log.failures.clear()


def _sign(each: StartLog, log: Log, line: str) -> None:
    log.engine = each.engine


def _read_other(read: _Reader, engine: str, log: Log, line: str) -> None:
    before = len(log.figures) + len(log.pools)
    read(log, line)
    if len(log.figures) + len(log.pools) > before:
        log.tell(engine)


def _read_figures(each: LogLine, engine: str, log: Log, line: str) -> None:
    if any(words in line for words in _NO_FIGURES):
        return
    if match := each.search(line):
        for name, value in each.values(match).items():
            if name == "context":
                log.say("context", int(value), _FIRM)
            else:
                log.least(name, value, _rank_of(line))
                _see_ranks(log, line)
        if each.is_telling:  # what the line itself says is of this start
            log.tell(engine)


def _rank_of(line: str) -> Rank | None:
    begin = line[:160]
    stage, place = _STAGE.search(begin), _PLACE.search(begin)
    if stage is None and place is None:
        return None
    return Rank(
        stage=int(stage[1] or stage[2]) if stage else None,
        place=int(place[1]) if place else None,
    )


def _read_number(each: LogLine, log: Log, line: str) -> None:
    if match := each.search(line):
        value = number(match[1])
        log.say(each.names[0], int(value) if value == int(value) else value, _FIRM)


def _read_version(each: LogLine, trust: int, log: Log, line: str) -> None:
    if match := each.search(line):
        log.say("version", match[1].rstrip(".'\")"), trust)


def _read_name(each: LogLine, log: Log, line: str) -> None:
    if match := each.search(line):
        _name(log, match[1].rstrip(".:'\" "))
        _see_ranks(log, line)


def _name(log: Log, name: str) -> None:
    if _is_name(name):
        log.call(name)


_NO_NAMES = ("-", "\\", "<", "$", "{")


def _is_name(text: str) -> bool:
    is_word = text.isprintable() and bool(text) and not text.startswith(_NO_NAMES)
    return is_word and text not in ("None", "null") and len(text) <= 200


def _read_failure(each: FailureLine, engine: str | None, log: Log, line: str) -> None:
    if match := each.line.search(line):
        if engine is not None:
            log.tell(engine)
        values = each.line.values(match) if each.line.names else {}
        values = {name.removeprefix("old_"): value for name, value in values.items()}
        log.fail(each.kind, **values)
        if "total" in values:
            log.least("total", values["total"])


def _see_ranks(log: Log, line: str) -> None:
    """More ranks share the model than any of them says."""
    for match in _OF_TP.finditer(line[:160]):
        if int(match[1]) >= int(log.settings.get("tp_seen", 1)):
            log.settings["tp_seen"] = int(match[1]) + 1


def _read_device(log: Log, line: str) -> None:
    if match := _GPU.search(line):
        log.say("device_name", match[1].strip())


def _read_speculation(log: Log, line: str) -> None:
    for match in _SPECULATIVE.finditer(line):
        if count := _DRAFTED.search(match[0]):
            log.say("speculated", int(count[1]))
        for name, pattern in (("speculative_method", _METHOD), ("speculative_model", _DRAFT)):
            found = pattern.search(match[0])
            if found and _is_name(found[1]):
                log.say(name, found[1] if pattern is _DRAFT else found[1].lower())
        for name, tokens in _LOOKUP.findall(match[0]):
            log.say(name, int(tokens))


def _read_settings(log: Log, line: str) -> None:
    if "speculative" in line:
        line = _SPECULATIVE.sub("", line)
    named = [(name, text) for name in _SETTING if name in line for text in _values(name, line)]
    is_command = "--" in line or " -tp " in line
    if not (named or is_command) or any(words in line for words in _NO_SETTINGS):
        return
    trust = _TOLD_TRUST if any(words in line for words in _TOLD) else _GENERAL
    for name, text in named:
        _set(log, _SETTINGS[name], text, trust)
    if is_command:
        _read_command(log, line, trust)


def _values(name: str, line: str) -> list[str]:
    found: list[str] = _SETTING[name].findall(line)
    return found[-1:]


def _read_command(log: Log, line: str, trust: int) -> None:
    if "--" in line:
        for key, text in _OPTION.findall(line):
            _set(log, _OPTIONS[key], text, trust)
        for flag in _FLAGS.findall(line):
            log.say(flag.replace("-", "_"), "True", trust)
        for name, text in _NOT.items():
            if text in line:
                log.say(name, "False", trust)
    for key, text in _SHORT.findall(line):
        _set(log, key, text, trust)


def _set(log: Log, name: str, text: str, trust: int) -> None:
    """A setting that says something: None and what is no number where one is meant do not."""
    text = text.rstrip(".")  # of a sentence
    if text in ("None", "null", "") or len(text) > 200 or text.startswith(("$", "<", "--")):
        return
    if not text.isprintable():
        return
    try:
        value = _READERS.get(name, str)(text[:40] if name in _READERS else text)
    except (ValueError, OverflowError):
        return
    log.say(name, value, trust)


def settings_of(log: Log, given: Mapping[str, Setting]) -> dict[str, Setting]:
    """What the log says, overruled by what is given."""
    return {**log.settings, **given}
