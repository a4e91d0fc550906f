"""The dtype in which an engine keeps recurrent state, from the model's config."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headcount.model.dtypes import ALIASES, BITS
from headcount.model.mixers import Recurrent
from headcount.model.spec import ModelSpec

from .kv_formats import KvFormat

_KEYS = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
# Their recurrent state is float32 whatever the config says (vllm: MambaStateDtypeCalculator).
_ALWAYS_WIDE = ("Kimi delta attention", "lightning attention")


def with_state_dtypes(
    kv: KvFormat, spec: ModelSpec, config: Mapping[str, Any], compute_bits: int
) -> KvFormat:
    """`kv` with the bits of recurrent state: those that the config names, else the model's own."""
    named = next((bits for text in _named(config) if (bits := _bits(text))), None)
    wide = any(_is_wide(mixer) for layer in spec.layers for mixer in layer.mixers)
    bits = named or (32 if wide else compute_bits)
    return replace(kv, state_bits=bits, conv_bits=compute_bits)


def _is_wide(mixer: object) -> bool:
    return isinstance(mixer, Recurrent) and mixer.form in _ALWAYS_WIDE


def _named(config: Mapping[str, Any]) -> Iterator[object]:
    for holder in (config, config.get("text_config")):
        if isinstance(holder, Mapping):
            yield from (holder[key] for key in _KEYS if key in holder)


def _bits(name: object) -> int | None:
    if not isinstance(name, str):
        return None
    plain = name.removeprefix("torch.")
    return BITS.get(ALIASES.get(plain, plain))
