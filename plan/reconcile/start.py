"""The start that a log is of: what it says, what options add, and defaults for the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..devices import Device, parse_device
from ..engines.engine import Engine, check_options, find_engine
from ..engines.start_log import Log, Setting
from ..planned_model import PlannedModel
from ..request import OF_ANY_PLAN, STATE_MODES, PlanRequest, StateMode
from .model import LoggedModel, find_model, loaded_as, need_model

_PASSED = (
    *("context", "kv_dtype", "tp", "pp", "max_num_seqs", "max_num_batched_tokens", "sampler"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """`said` are the settings that log or options gave; the others are defaults."""

    log: Log
    model: PlannedModel
    request: PlanRequest
    said: frozenset[str]
    notes: tuple[str, ...]


def start_of(log: Log, options: Mapping[str, Any]) -> Start:
    """The start of `log`; `options` that are given overrule what it says. Raises HeadcountError."""
    given = {name: value for name, value in options.items() if value not in (None, False)}
    settings: dict[str, Setting] = {**log.settings, **given}
    engine = find_engine(str(given.get("engine", log.engine)))
    found = find_model(
        need_model(_text(settings, "model")),
        _text(log.settings, "model"),
        _text(settings, "quantization"),
    )
    device = _device(log, _text(given, "device"))
    version = _text(settings, "engine_version") or _text(settings, "version")
    check_options(engine, PlanRequest(**_options(given)))
    logged = _options(settings)
    request = PlanRequest(
        engine=engine.name,
        version=engine.releases.parse(version) if version else engine.releases.latest(),
        device=device,
        dtype=loaded_as(found.model, _dtype(settings)),
        utilisation=_share(settings),
        **{name: logged[name] for name in logged.keys() & (OF_ANY_PLAN | engine.options)},
    )
    return Start(
        log=log,
        model=found.model,
        request=request,
        said=frozenset(settings),
        notes=tuple(_notes(found, settings, None if version else engine)),
    )


def _options(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The fields of a request that `settings` fill."""
    return {
        "block_size": _block_size(settings),
        "context_ranks": _context_ranks(settings),
        "enforce_eager": str(settings.get("enforce_eager", "")) == "True",
        "caches_prefixes": _flag(settings, "caches_prefixes"),
        "mamba_cache_mode": _mode(settings),
        "disable_hybrid_kv_cache_manager": bool(settings.get("disable_hybrid_kv_cache_manager")),
        "usage": "offline" if settings.get("offline") else "server",
        **{name: settings[name] for name in _PASSED if name in settings},
    }


def _notes(
    found: LoggedModel, settings: Mapping[str, Setting], versionless: Engine | None
) -> Iterator[str]:
    """What may keep the figures from agreeing."""
    if found.note:
        yield found.note
    if settings.get("overridden"):
        yield (
            f"the start overrides the number of blocks ({settings['overridden']:,}): what the log"
            " counts does not follow from the memory"
        )
    if settings.get("speculated"):
        yield (
            "the start speculates: a draft's layers and the state of speculated tokens are not"
            " reckoned with, so that fewer blocks may be logged than predicted"
        )
    if versionless is not None:
        newest = versionless.releases.latest().text
        yield f"the log names no version: the rules of {newest} are taken"


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else str(value)


def _device(log: Log, name: str | None) -> Device | None:
    """The device named, else one of the memory that the log says is visible."""
    if name is not None:
        return parse_device(name)
    total = log.figures.get("total")
    return None if total is None or total <= 0 else parse_device(f"{total:.2f}GiB")


def _dtype(settings: Mapping[str, Setting]) -> str | None:
    """auto and half-spelt names are left to the model."""
    name = str(settings.get("dtype", "auto")).removeprefix("torch.")
    return name if name in ("float16", "bfloat16", "float32", "half", "float") else None


def _share(settings: Mapping[str, Setting]) -> float | None:
    value = settings.get("utilisation")
    return None if value is None else float(value)


def _block_size(settings: Mapping[str, Setting]) -> int | None:
    """What was asked for, or what the log says that the engine made of it beside recurrent state:
    kernels differ in their steps, which a log does not name."""
    value = settings.get("state_block", settings.get("block_size"))
    return None if value is None else int(value)


def _flag(settings: Mapping[str, Setting], name: str) -> bool | None:
    return {"True": True, "False": False}.get(str(settings.get(name)))


def _mode(settings: Mapping[str, Setting]) -> StateMode | None:
    named = settings.get("mamba_cache_mode")
    return next((mode for mode in STATE_MODES if mode == named), None)


def _context_ranks(settings: Mapping[str, Setting]) -> int:
    asked = settings.get("context_ranks")
    if asked is not None:
        return int(asked)
    return int(settings.get("dcp", 1)) * int(settings.get("pcp", 1))
