"""The model of a log: by its name, or by the catalogue's model of the same geometry."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from headcount.audit.auditing import audit_model
from headcount.model.dtypes import ALIASES
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Recurrent
from headcount.sources.catalogue import catalogue

from ..command import planned
from ..engines.start_log import Log
from ..planned_model import PlannedModel
from ..stored import as_format

# What names add for a fine-tune, or for weights stored otherwise: neither changes heads or layers.
_SUFFIX = re.compile(
    r"-(?:fp8|dynamic|block|awq|gptq|int4|int8|w4a16|w8a8|w8a16|w4a8|nvfp4|fp4|mxfp4|mxfp8|4bit|8bit"
    r"|bnb|bf16|fp16|f16|instruct|it|chat|base|hf|thinking|coder|gguf|g128|g32|marlin|quantized|ct"
    r"|q[2-8](?:-(?:k|[0-9]|m|s|l|xl))*|iq[1-4]-[a-z]+|ud|mlx|autoround|auto-round|abliterated"
    r"|uncensored|ablated|unsloth|modelopt|latest|pruned|text|only|mm|local|model|qat|quarot"
    r"|per-channel|v[0-9](?:-[0-9])?|[0-9]{4})$"
)
_TUNED = re.compile(r"-(?:coder|math)(?=-[0-9.-]{1,6}b)")
_ORGANISATION = re.compile(
    r"^(?:meta|google|qwen|openai|mistralai|microsoft|nvidia|unsloth|redhatai|hf|model|models"
    r"|neuralmagic|lmstudio|deepseek-ai|bartowski)-(?=.)"
)
_CACHED = re.compile(r"models--(?P<name>[^/\s]+?)(?:/snapshots/[^/]*)?/?$")
_PART = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")

# What a log, or a name, calls the storage of weights, and the format that the plan knows it by.
_FORMATS = (
    (re.compile(r"nvfp4|modelopt_fp4|w4a4|(?<![a-z])fp4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"awq"), "awq"),
    (re.compile(r"int8|w8a16|8bit|w8a8-int"), "int8"),
    (re.compile(r"gptq|w4a16|int4|autoround|auto-round|wna16"), "gptq"),
    (re.compile(r"bnb|bitsandbytes|4bit"), "nf4"),
    (re.compile(r"fp8|w8a8|fbgemm"), "fp8"),
)
_GGUF = re.compile(
    r"(?:^|[-_.])((?:q[2-8]|iq[1-4])(?:_[a-z0-9]+)*|mxfp4_moe)(?:\.gguf)?$", re.IGNORECASE
)
_OFFERED = 3  # models that a log may be of
_OF_UNKNOWN_SCHEME = ("compressed-tensors", "modelopt")  # 8 bit unless a name says more
_FP8 = {"quant_method": "fp8"}
_INT8 = {"quant_method": "gptq", "bits": 8, "group_size": 128}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedModel:
    """`note` says where another name than the log's was taken; `called` is what a command to start
    it calls it; `format_is_assumed`: the weights are quantised, not by the config that is known,
    and others leave other parts of the model wide."""

    model: PlannedModel
    called: str
    note: str | None = None
    format_is_assumed: bool = False


class UnknownModelError(HeadcountError):
    """A log that names no model, or none that is known."""


def models_of_weights(log: Log) -> tuple[str, ...]:
    """Models of the catalogue whose weights, of 16 bit and spread over the ranks, take what a rank
    of the log loaded, to 1 %: the nearest first."""
    gib = log.figures.get("weights_gib")
    if gib is None or str(log.settings.get("quantization")) not in ("None", "null"):
        return ()
    ranks = int(log.settings.get("tp", 1)) * int(log.settings.get("pp", 1))
    found = sorted(
        (off, row.id)
        for row in catalogue()
        if row.parameters and stored_as(None, [row.id]) is None
        if (off := abs(2 * row.parameters / ranks / 2**30 / gib - 1)) < 0.01
    )
    return tuple(name for _, name in found[:_OFFERED])


def find_model(
    names: Iterable[str], quantization: str | None, logged: Iterable[str] = ()
) -> LoggedModel:
    """The first of `names` that means a model, with weights as `quantization`, or else a name, also
    one that is `logged`, says that they are stored.

    Raises HeadcountError, with near names, if there is none.
    """
    called = list(names)
    stored = stored_as(quantization, [*called[:1], *logged])
    if not called:
        raise UnknownModelError("the log names no model: say which with --model NAME")
    for name in called:
        if (known := known_name(name)) is not None:
            return _logged(name, known, stored)
    return _logged(called[0], _audited_name(called[0]), stored)


def _audited_name(name: str) -> str:
    """A path, or a name of the Hub, to be read. Raises HeadcountError with what to do."""
    cached = _CACHED.search(name)
    return cached["name"].replace("--", "/") if cached else name


def _logged(name: str, known: str, stored: str | None) -> LoggedModel:
    try:
        audit = audit_model(known)
    except HeadcountError as error:
        near = _near(name)
        hint = f" (nearest are {', '.join(near)})" if near else ""
        raise UnknownModelError(
            f"the model is {name!r}, which is not known here{hint}: say which it is with"
            " --model NAME, a file or a folder"
        ) from error
    exact = _key(name) == _key(known) or known == name
    own = planned(audit)
    model = _as_stored(own, stored)
    is_known = exact and model is own
    return LoggedModel(
        model=model,
        called=name,
        format_is_assumed=not is_known and _narrows_in_part(model),
        note=None if exact else f"{name} is taken for {audit.source.id}: the same geometry",
    )


def _narrows_in_part(model: PlannedModel) -> bool:
    """Whether quantised files of the model differ in what they leave wide: towers beside the
    language model, and recurrent layers."""
    states = (isinstance(mixer, Recurrent) for la in model.spec.layers for mixer in la.mixers)
    return "quantization_config" in model.config and ("text_config" in model.config or any(states))


def _near(name: str) -> list[str]:
    """Names of the catalogue that are like the last part of this."""
    from difflib import get_close_matches  # slow to import, and only errors want it

    base = _key(name.rstrip("/").rsplit("/", 1)[-1])
    known = {_key(n.rsplit("/", 1)[-1]): n for row in catalogue() for n in row.names}
    return [known[key] for key in get_close_matches(base, known, n=3, cutoff=0.75)]


def _as_stored(model: PlannedModel, stored: str | None) -> PlannedModel:
    """In the format named; the config's own is finer than `fp8`, and compressed-tensors' than that
    its whole numbers have few bits."""
    own = model.config.get("quantization_config") or {}
    packed = stored == "gptq" and own.get("quant_method") == "compressed-tensors"
    if stored is None or packed or (stored == "fp8" and own):
        return model
    if stored in ("fp8", "int8"):
        settings = _FP8 if stored == "fp8" else _INT8
        config = {**model.config, "quantization_config": settings}
        return replace(model, config=config, weights_bytes=None)
    return as_format(model, stored)


def stored_as(quantization: str | None, names: Iterable[str]) -> str | None:
    """The format of the weights: what the log names, made finer by the model's name; None as the
    model's config says."""
    said = (quantization or "").casefold().replace("online_", "")
    if said != "gguf" and (mix := _GGUF.search(f"-{said}")):
        return mix[1].lower()
    bases = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    for text in (*bases[:3], said):
        if (mix := _GGUF.search(text)) and (said in ("", "gguf")):
            return mix[1].lower()
        if said or text:
            for pattern, name in _FORMATS:
                if pattern.search(text.casefold()):
                    return name
    return "fp8" if said in _OF_UNKNOWN_SCHEME else None


def known_name(name: str) -> str | None:
    """The name in the catalogue that `name` means: an id or an alias, a path that ends in one, that
    of a cache (`models--org--name/snapshots/…`, `Qwen2___5-7B`), and those with suffixes of
    weights that are stored otherwise."""
    keys = _keys_of_catalogue()
    found = next((keys[key] for key in _keys(name) if key in keys), None)
    if found is not None:
        return found
    squeezed = {_squeezed(key): known for key, known in keys.items()}
    return next((squeezed[k] for k in map(_squeezed, _keys(name)) if k in squeezed), None)


def _squeezed(key: str) -> str:
    """Of a tag such as `llama3.1:8b`, and of a fine-tune for code or maths of the same layers."""
    return _TUNED.sub("", key).replace("-", "")


@lru_cache(maxsize=1)
def _keys_of_catalogue() -> dict[str, str]:
    """Ids and aliases, which may have a dtype of their own, by what all spellings share."""
    names = [name for row in catalogue() for name in row.names]
    found = {_key(name): name for name in reversed(names)}
    for name in names:  # whoever published it
        found.setdefault(_key(name.rsplit("/", 1)[-1]), name)
    return found


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")


def _keys(name: str) -> Iterator[str]:
    """The whole name, then its last part, and what is left of that without suffixes, the longest
    first."""
    cached = _CACHED.search(name)
    plain = cached["name"].replace("--", "/") if cached else name
    plain = plain.replace("\\", "/").rstrip("/").replace("___", ".").removesuffix(".gguf")
    yield _key(plain)
    for base in (plain, *reversed(plain.split("/")[-2:])):
        for text in _shorter(_key(_PART.sub("", base))):
            yield from (text, f"{text}-instruct", f"{text}-it")


def _shorter(key: str) -> Iterator[str]:
    while True:
        yield key
        bare = _ORGANISATION.sub("", key)
        if bare != key:
            yield bare
        shorter = _SUFFIX.sub("", key)
        if shorter == key:
            return
        key = shorter


def loaded_as(model: PlannedModel, dtype: str | None) -> str | None:
    """The dtype that weights are loaded as, None as they are stored: a quantised model's stay."""
    full = ALIASES.get(dtype or "", dtype)
    return None if "quantization_config" in model.config or full == model.spec.dtype else dtype
