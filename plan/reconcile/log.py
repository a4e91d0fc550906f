"""What a start-up log says: figures of memory, and the settings that they came of."""

import re
from collections.abc import Callable, Iterable

from ..engines.registry import SERVING
from ..engines.start_log import QUOTED, Log, Setting, number, start_logs

FIGURES = ("available_gib", "kv_tokens", "num_blocks", "concurrency", "weights_gib")
_READERS: dict[str, Callable[[str], Setting]] = {
    **dict.fromkeys(("context", "tp", "pp", "dcp", "pcp", "block_size", "max_num_seqs"), int),
    **{"max_num_batched_tokens": int, "speculated": int},
    "utilisation": float,
}
_LOGS = tuple(start_logs().values())
LOOKED_FOR = "; ".join(log.looked_for for log in _LOGS)
_STARTS = tuple(words for log in _LOGS for words in log.starts)
_OF_ONE_START = tuple(name for log in _LOGS for name in log.of_one_start)
_NO_FIGURES = tuple(words for log in _LOGS for words in log.no_figures)
_FIGURES = tuple(line for log in _LOGS for line in log.figures)
_NUMBERS = tuple(line for log in _LOGS for line in log.numbers)
_VERSIONS = tuple(line for log in _LOGS for line in log.versions)
_SETTINGS = {name: ours for log in _LOGS for name, ours in log.settings.items()}
_SETTING = re.compile(
    rf"(?<![A-Za-z_])['\"]?({'|'.join(_SETTINGS)})['\"]?(?:=|: ){QUOTED}", re.ASCII
)
_OPTIONS = {
    **{name.replace("_", "-"): ours for name, ours in _SETTINGS.items()},
    "tp": "tp",
    "pp": "pp",
}
_OPTION = re.compile(rf"--({'|'.join(_OPTIONS)})[ =]{QUOTED}", re.ASCII)


def read_log(lines: Iterable[str]) -> Log:
    """The last start in `lines` that has figures, since people paste parts of a log in any order;
    nothing in it is run or trusted beyond its numbers. What is read is what any engine logs."""
    log = Log(engine=SERVING)
    earlier: dict[str, float] = {}
    for line in lines:
        if any(words in line for words in _STARTS):
            earlier = dict(log.figures) or earlier
            log.figures.clear()
            log.pools.clear()
            for name in _OF_ONE_START:
                log.settings.pop(name, None)
        _read_line(log, line)
    if not any(name in log.figures for name in FIGURES):
        log.figures = {**earlier, **log.figures}
    for each in _LOGS:
        each.finish(log)
    return log


def _read_line(log: Log, line: str) -> None:
    _read_version(log, line)
    if not any(words in line for words in _NO_FIGURES):
        _read_figures(log, line)
    _read_settings(log, line)
    for each in _LOGS:
        if any(words in line for words in each.signs):
            log.engine = each.engine
        each.read_line(log, line)


def _read_version(log: Log, line: str) -> None:
    match = next((found for each in _VERSIONS if (found := each.search(line))), None)
    if match:
        log.settings["version"] = match[1]


def _read_figures(log: Log, line: str) -> None:
    for each in _FIGURES:
        if match := each.search(line):
            for name, text in zip(each.names, match.groups(), strict=True):
                if name == "context":
                    log.settings["context"] = int(number(text))
                elif name:
                    log.least(name, number(text))


def _read_settings(log: Log, line: str) -> None:
    for each in _NUMBERS:
        if match := each.search(line):
            log.settings[each.names[0]] = number(match[1])
    if ("=" in line or "': " in line) and any(name in line for name in _SETTINGS):
        for key, text in _SETTING.findall(line):
            _set(log, _SETTINGS[key], text)
    if "--" in line:
        for key, text in _OPTION.findall(line):
            _set(log, _OPTIONS[key], text)


def _set(log: Log, name: str, text: str) -> None:
    """A setting that says something: None and what is no number where one is meant do not."""
    text = text.rstrip(".")  # of a sentence
    if text in ("None", "null") or len(text) > 200:
        return
    try:
        log.settings[name] = _READERS.get(name, str)(text[:40] if name in _READERS else text)
    except ValueError:
        return
