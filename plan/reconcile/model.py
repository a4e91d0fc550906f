"""The model of a log: by its name, or by the catalogue's model of the same geometry."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headcount.audit.auditing import audit_model
from headcount.model.errors import HeadcountError
from headcount.sources.catalogue import find_row

from ..command import planned
from ..planned_model import PlannedModel

# What names add for a fine-tune, or for weights stored otherwise: neither changes heads or layers.
_SUFFIX = re.compile(
    r"[-_](?:fp8|fp8[-_]dynamic|dynamic|awq|gptq|int4|int8|w4a16|w8a8|nvfp4|mxfp4|4bit|8bit|bf16"
    r"|instruct|it|chat|base|hf|thinking|\d{4}|gguf)$",
    re.IGNORECASE,
)
_FP8 = re.compile(r"fp8|w8a8", re.IGNORECASE)
_QUANTISED = ("fp8", "compressed-tensors", "fbgemm_fp8")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedModel:
    """`note` says where another name than the log's was taken."""

    model: PlannedModel
    note: str | None = None


def find_model(name: str, logged: str | None, quantization: str | None) -> LoggedModel:
    """The model that `name` means, with weights of 8 bit where it, or the `logged` name, says so.

    Raises HeadcountError, with near names, if there is none.
    """
    known = next((text for text in _names(name) if find_row(text)), name)
    audit = audit_model(known)
    is_exact = known == name
    model = planned(audit)
    is_narrow = quantization in _QUANTISED or bool(_FP8.search(f"{name} {logged or ''}"))
    if is_narrow and "quantization_config" not in model.config:
        config = {**model.config, "quantization_config": {"quant_method": "fp8"}}
        model = replace(model, config=config, weights_bytes=None)
    note = None if is_exact else f"{name} is taken for {audit.source.id}: the same geometry"
    return LoggedModel(model=model, note=note)


def _names(name: str) -> Iterator[str]:
    """`name`, and what is left without its folder and its suffixes, the longest first."""
    for base in dict.fromkeys((name, name.rstrip("/").rsplit("/", 1)[-1])):
        text = base
        while True:
            yield from (text, f"{text}-Instruct")
            shorter = _SUFFIX.sub("", text)
            if shorter == text:
                break
            text = shorter


def need_model(name: str | None) -> str:
    """`name`. Raises HeadcountError where neither log nor options name a model."""
    if name is None:
        raise HeadcountError("the log names no model: say which with --model NAME")
    return name


def loaded_as(model: PlannedModel, dtype: str | None) -> str | None:
    """The dtype that weights are loaded as: a quantised model's stay as they are."""
    return None if "quantization_config" in model.config else dtype
