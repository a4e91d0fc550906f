"""The classes of ours that hold a model, as its config names them."""

from dataclasses import dataclass
from typing import Any

from headcount.arch.model_classes import (
    auto_class,
    base_class,
    model_classes,
    task_classes,
    tokenizer_class,
)

from ..plan.refusals.types import no_generating_class
from ..plan.source import ConversionSource


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassNames:
    """The keys of a config that name the classes of a model, and that of its tokenizer where the
    config has to, each with what changes, in words."""

    added: dict[str, Any]
    changes: tuple[str, ...]
    tokenizer: dict[str, str]
    tokenizer_changes: tuple[str, ...]


def classes_of_ours(
    source: ConversionSource, model_type: str, module: str, prefix: str
) -> ClassNames:
    """Those of the file `module`, whose classes are called as the source's with `prefix` in front.
    Raises CannotConvertError for a class that is not known to generate text."""
    architecture = _architecture(source, model_type)
    old = source.config
    # transformers' own table does not know the new type
    tokenizer = None if old.get("tokenizer_class") else tokenizer_class(model_type)
    added: dict[str, Any] = {
        "architectures": [prefix + architecture],
        "auto_map": _auto_map(model_type, architecture, module, prefix),
    }
    changes = (
        f"architectures: {architecture} -> {prefix}{architecture}",
        f"auto_map: names {module}.py, which lies beside the weights",
    )
    return ClassNames(
        added=added,
        changes=changes,
        tokenizer={} if tokenizer is None else {"tokenizer_class": tokenizer},
        tokenizer_changes=() if tokenizer is None else (f"tokenizer_class: absent -> {tokenizer}",),
    )


def _architecture(source: ConversionSource, model_type: str) -> str:
    """The class that the source was saved from, by its name in transformers."""
    given = source.config.get("architectures")
    name = given[0] if isinstance(given, list) and given else None
    if isinstance(name, str):
        return base_class(name)
    classes = model_classes(model_type)
    heads = [name for auto, name in classes.items() if auto not in ("AutoConfig", "AutoModel")]
    if not heads:
        raise no_generating_class(source, model_type)
    return heads[-1] if source.config.get("is_encoder_decoder", True) else heads[0]


def _auto_map(model_type: str, architecture: str, module: str, prefix: str) -> dict[str, str]:
    """Auto class -> our class: those that transformers has for the type, and the saved one."""
    classes = model_classes(model_type) | task_classes(model_type)
    own = auto_class(architecture, classes)
    if own is not None:
        classes[own] = architecture
    return {auto: f"{module}.{prefix}{name}" for auto, name in classes.items()}
