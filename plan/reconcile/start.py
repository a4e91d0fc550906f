"""The start that a log is of: what it says, what options add, and defaults for the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headcount.model.errors import HeadcountError

from ..command import read_options
from ..devices import Device, find_device, parse_device
from ..engines.engine import Engine, check_options, find_engine
from ..engines.start_log import Log, Setting
from ..parallel import valid_tp
from ..planned_model import PlannedModel
from ..request import OF_ANY_PLAN, STATE_MODES, PlanRequest, StateMode
from .gguf_model import described_model, keeps_alike
from .log import settings_of
from .model import LoggedModel, find_model, loaded_as
from .speculated import Speculated, speculated, speculated_by_algorithm

_PASSED = (
    *("context", "kv_dtype", "tp", "pp", "max_num_seqs", "max_num_batched_tokens", "sampler"),
    *("batch_size", "model_runner", "parallel", "kv_unified", "cache_type_k", "cache_type_v"),
    *("gpu_layers", "n_cpu_moe", "ubatch_size"),
)
_FLAGS = (
    *("enable_expert_parallel", "enable_lora", "enable_dp_attention", "no_kv_offload", "swa_full"),
    "cpu_moe",
)

# What options say, and no log.
VERSIONS = frozenset({"version", "engine_version", "version_at_most"})  # settings that say which
_OWN_FIELDS = frozenset(
    {
        *("pp_layer_partition", "num_redundant_experts", "speculative_config"),
        *("speculative_algorithm", "max_loras", "max_lora_rank", "lora_dtype", "flash_attn"),
        *("lora_target_modules", "fully_sharded_loras", "limit_mm_per_prompt", "dp", "ep_size"),
        *("mm_processor_kwargs", "cpu_offload_gb"),
    }
)
_GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """`said` are the settings that log or options gave; the others are defaults. `called` is what
    the log calls the model, and `quantization` what its weights were loaded with;
    `format_is_assumed`: its files are quantised otherwise than those that are known, or by others;
    `told_kv_memory` are bytes for the cache that it was told to take, whatever was free."""

    log: Log
    model: PlannedModel
    called: str
    request: PlanRequest
    said: frozenset[str]
    notes: tuple[str, ...]
    quantization: str | None = None
    format_is_assumed: bool = False
    told_kv_memory: int | None = None
    tp_is_guessed: bool = False
    device_is_guessed: bool = False


def names_of(log: Log, options: Mapping[str, Any]) -> list[str]:
    """What the model may be called, the likeliest first."""
    if options.get("model"):
        return [str(options["model"])]
    told = log.settings.get("model")
    return list(dict.fromkeys([*([str(told)] if told is not None else []), *log.names]))


def start_of(log: Log, options: Mapping[str, Any]) -> Start:
    """The start of `log`; `options` that are given overrule what it says. Raises HeadcountError."""
    given = read_options({n: value for n, value in options.items() if value not in (None, False)})
    settings = settings_of(log, given)
    if (warmed := log.failures.get("sampler")) is not None:
        settings.setdefault("max_num_seqs", int(warmed.values["sequences"]))
    engine = find_engine(str(given.get("engine", log.engine)))
    fields = {name: value for name, value in given.items() if name in _OWN_FIELDS}
    check_options(engine, _asked_for(given, fields, settings, engine))
    found = _model(log, options, settings)
    guessed = "tp" not in settings and "tp_seen" in settings
    if guessed:
        settings["tp"] = _tp_of_ranks(found.model, int(settings["tp_seen"]))
    device = device_of(log, _text(given, "device"))
    version = _version(settings)
    logged = _options(settings)
    request = PlanRequest(
        engine=engine.name,
        version=engine.releases.parse(version) if version else engine.releases.latest(),
        device=device,
        dtype=_text(given, "dtype") or loaded_as(found.model, _dtype(settings)),
        utilisation=_share(settings),
        **{name: logged[name] for name in logged.keys() & (OF_ANY_PLAN | engine.options)} | fields,
    )
    drafts, name = (None, "") if request.speculation else _drafts(settings, found, engine)
    if drafts is not None:
        drafts = drafts.weighed(found.model, request, name)
        field: dict[str, Any] = {name: drafts.speculation}
        request = replace(request, **field)
    names = [name for name in names_of(log, {}) if name] or [_published(found)]
    return Start(
        log=log,
        model=found.model,
        called=names[0],
        request=request,
        said=frozenset(settings),
        notes=tuple(_notes(found, settings, log.settings, engine, drafts)),
        quantization=_text(settings, "quantization"),
        format_is_assumed=found.format_is_assumed,
        told_kv_memory=int(settings["kv_memory"]) if "kv_memory" in settings else None,
        tp_is_guessed=guessed,
    )


def _published(found: LoggedModel) -> str:
    """The name that an engine knows, where the one that was given is the catalogue's alone."""
    is_alias = "/" not in found.called and "/" in found.model.model_id
    return found.model.model_id if is_alias else found.called


def _asked_for(
    given: Mapping[str, Any],
    fields: Mapping[str, Any],
    settings: Mapping[str, Setting],
    engine: Engine,
) -> PlanRequest:
    """What the options alone say; that the log says what one of them needs counts."""
    found = {**_options(given), **fields}
    if "enable_lora" in engine.options:
        found["enable_lora"] = _is_on(settings, "enable_lora")
    return PlanRequest(**found)


def _model(log: Log, options: Mapping[str, Any], settings: Mapping[str, Setting]) -> LoggedModel:
    """By its name, unless the log describes another one. Raises HeadcountError for a name that is
    not known, of a model that the log does not describe."""
    names, method = names_of(log, options), _method(settings)
    described = None if options.get("model") else described_model(log, next(iter(names), "?"))
    try:
        found = find_model(names, method, names_of(log, {}))
    except HeadcountError:
        if described is None:
            raise
        found = None
    if described is None or (found and keeps_alike(found.model.spec, described.spec)):
        assert found is not None
        return found
    other = f", which differ from those of {found.model.model_id}" if found else ""
    note = f"the model is that of the key-values which the log prints of its file{other}"
    return LoggedModel(model=described, called=described.model_id, note=note)


def _drafts(
    settings: Mapping[str, Setting], found: LoggedModel, engine: Engine
) -> tuple[Speculated | None, str]:
    """What drafts, and the field of a request that it is said by."""
    if "speculative_algorithm" in engine.options:
        return speculated_by_algorithm(settings, found), "speculative_algorithm"
    takes = "speculative_config" in engine.options
    return speculated(settings, found) if takes else None, "speculative_config"


def _options(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The fields of a request that `settings` fill."""
    return {
        "block_size": _block_size(settings),
        "context_ranks": _context_ranks(settings),
        "enforce_eager": str(settings.get("enforce_eager", "")).casefold() == "true",
        "caches_prefixes": _flag(settings, "caches_prefixes"),
        "async_scheduling": _flag(settings, "async_scheduling"),
        "mamba_cache_mode": _mode(settings),
        "disable_hybrid_kv_cache_manager": _is_on(settings, "disable_hybrid_kv_cache_manager"),
        "usage": "offline" if settings.get("offline") else "server",
        **_added(settings),
        **{name: settings[name] for name in _PASSED if name in settings},
    }


def _added(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Data parallel, experts, adapters and weights in the host's memory."""
    found: dict[str, Any] = {
        "dp": int(settings.get("dp", 1) or 1),
        "cpu_offload_gb": float(settings.get("cpu_offload_gb") or 0) or None,
        "ep_size": int(settings.get("ep_size", 1) or 1),
        "num_redundant_experts": int(settings.get("num_redundant_experts", 0)),
        **{name: _is_on(settings, name) for name in _FLAGS},
    }
    if found["enable_lora"]:
        found["fully_sharded_loras"] = _is_on(settings, "fully_sharded_loras")
        counts = ("max_loras", "max_lora_rank")
        found |= {name: int(settings[name]) for name in counts if name in settings}
    return found


def _notes(
    found: LoggedModel,
    settings: Mapping[str, Setting],
    logged: Mapping[str, Setting],
    engine: Engine,
    drafts: Speculated | None,
) -> Iterator[str]:
    """What may keep the figures from agreeing."""
    if found.note:
        yield found.note
    if settings.get("tp_seen") and settings.get("tp") and "tp" not in logged:
        yield f"tp is taken from the ranks that log: {settings['tp']}"
    if settings.get("overridden"):
        yield (
            f"the start overrides the number of blocks ({settings['overridden']:,}): what the log"
            " counts does not follow from the memory"
        )
    if drafts is not None:
        yield drafts.note
    version = _version(settings)
    if _said_version(settings) is None and version is not None:
        yield f"the log names no version, and does what {version} did: its rules are taken"
    elif version is None and engine.releases.newest:
        who, newest = settings.get("served_by", "the log"), engine.releases.latest().text
        yield f"{who} names no version of {engine.name}: the rules of {newest} are taken"
    elif version and (note := engine.releases.note(engine.name, engine.releases.parse(version))):
        yield note


def _tp_of_ranks(model: PlannedModel, seen: int) -> int:
    """The least that splits the model among the ranks that logged something."""
    return next((tp for tp in valid_tp(model.spec) if tp >= seen), 1)


def _version(settings: Mapping[str, Setting]) -> str | None:
    """What is given or logged, or the last that does what the log shows."""
    return _said_version(settings) or _text(settings, "version_at_most")


def _said_version(settings: Mapping[str, Setting]) -> str | None:
    return _text(settings, "engine_version") or _text(settings, "version")


def _method(settings: Mapping[str, Setting]) -> str | None:
    """What the weights are stored by, with the scheme of a format that has several."""
    return " ".join(filter(None, map(partial(_text, settings), ("quantization", "scheme")))) or None


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else str(value)


def device_of(log: Log, name: str | None) -> Device | None:
    """The device named, else one of the memory that the log says is visible, by its name where it
    is one that is known."""
    if name is not None:
        return parse_device(name)
    known = _named_device(log)
    total = log.figures.get("total") or _capacity(log)
    if total is None or not 0.01 < total < 10_000:
        return known
    if known is not None and abs(known.usable_memory / _GIB - total) < 0.02 * total:
        return known
    return parse_device(f"{total:.2f}GiB")


def _capacity(log: Log) -> float | None:
    """Of an error of torch."""
    failure = log.failures.get("memory")
    return failure.values.get("capacity") if failure else None


def _named_device(log: Log) -> Device | None:
    name = log.settings.get("device_name")
    if name is None:
        return None
    try:
        return find_device(str(name))
    except HeadcountError:
        return None


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
    return {"true": True, "false": False}.get(str(settings.get(name)).casefold())


def _is_on(settings: Mapping[str, Setting], name: str) -> bool:
    value = settings.get(name)
    return bool(value) and str(value).casefold() != "false"


def _mode(settings: Mapping[str, Setting]) -> StateMode | None:
    named = settings.get("mamba_cache_mode")
    return next((mode for mode in STATE_MODES if mode == named), None)


def _context_ranks(settings: Mapping[str, Setting]) -> int:
    asked = settings.get("context_ranks")
    if asked is not None:
        return int(asked)
    return int(settings.get("dcp", 1)) * int(settings.get("pcp", 1))
