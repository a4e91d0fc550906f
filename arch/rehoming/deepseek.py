"""Llama and decoders like it -> DeepSeek-V3 with dense layers alone, whose attention is latent.

Both norm in front of the attention and of the MLP by the root mean square, and gate the MLP; their
tensors outside the attention have the same names. DeepSeek-V3 has no biases that engines read (vLLM
skips them), no norms of q and k, no windows, and only the plain rotation in all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .rehome import OldConfig

TARGET = "deepseek_v3"
_NO_BIASES = ("attention_bias", "mlp_bias", "use_bias", "attention_out_bias")
_SCALING = "rope_scaling", "rope_parameters"
_PLAIN = (None, "default")
_DEFAULTS = {
    **{"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Multipliers:
    """Factors of a class that DeepSeek's has not: of embedded tokens, of what attention and MLP
    add, of the logits. `attention`: of the scores; None: 1 / sqrt(head_dim)."""

    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0
    attention: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LikeLlama:
    """A type whose layers DeepSeek's class computes but for their attention. `prefix` is that of
    its classes' names; `defaults` is what its config class takes for keys that a file leaves out
    (transformers 5.24), where that is not `_DEFAULTS`."""

    prefix: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    multipliers: Callable[[OldConfig], Multipliers] = lambda old: Multipliers()


def _granite(old: OldConfig) -> Multipliers:
    return Multipliers(
        embedding=old["embedding_multiplier"],
        residual=old["residual_multiplier"],
        logits=1 / old["logits_scaling"],
        attention=old["attention_multiplier"],
    )


LIKE_LLAMA: Mapping[str, LikeLlama] = {
    "llama": LikeLlama(prefix="Llama"),
    "mistral": LikeLlama(prefix="Mistral"),
    "granite": LikeLlama(
        prefix="Granite",
        defaults={
            **dict.fromkeys(("embedding_multiplier", "residual_multiplier"), 1.0),
            **dict.fromkeys(("logits_scaling", "attention_multiplier"), 1.0),
        },
        multipliers=_granite,
    ),
    "helium": LikeLlama(
        prefix="Helium",
        defaults={"rms_norm_eps": 1e-8, "rope_theta": 100000.0, "pad_token_id": 3},
    ),
    "ernie4_5": LikeLlama(
        prefix="Ernie4_5",
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "pad_token_id": 0},
    ),
}


def read_old(config: Mapping[str, Any], model_type: str) -> OldConfig:
    """The config of one of `LIKE_LLAMA`, with what its class takes for what is left out."""
    return OldConfig(config, model_type, {**_DEFAULTS, **LIKE_LLAMA[model_type].defaults})


def misfit(old: OldConfig) -> str | None:
    """What of a config DeepSeek's class does not compute; None: it computes all of it."""
    kinds = {name for name in map(_rope_type, map(old.__getitem__, _SCALING)) if name not in _PLAIN}
    if kinds:
        return (
            f"its rotation is of the kind {kinds.pop()!r}, where engines rotate the keys of"
            " DeepSeek's class by the plain one or by its own YaRN"
        )
    if old["hidden_act"] != "silu":
        return f"its MLP computes {old['hidden_act']}, where engines' code of DeepSeek takes silu"
    biased = next((key for key in _NO_BIASES if old[key]), None)
    return None if biased is None else f"it has biases ({biased}), which engines' DeepSeek skips"


def theta(old: OldConfig) -> float:
    """The base of the rotation."""
    given = [found for key in _SCALING if isinstance(found := old[key], dict)]
    named = (found.get("rope_theta") for found in given)
    return float(next((base for base in named if base), None) or old["rope_theta"])


def _rope_type(scaling: Any) -> Any:
    if not isinstance(scaling, dict):
        return None
    return scaling.get("rope_type", scaling.get("type"))
