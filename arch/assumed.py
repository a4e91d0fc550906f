"""A type that nobody described: read by the words that configs share, or refused with the key that
stands in the way.

What is read: heads, widths, windows, biases and latent ranks by all their common names, and a
nested language model. What is not understood and would change the cache is no guess of ours: state,
sparsity, layers of several kinds, caches that layers share.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headcount.model.errors import UnsupportedModelError
from headcount.model.numbers import whole

from .architecture import Architecture, ConfigKeys
from .attention.layer_kinds import SLIDING, by_window, full_every
from .attention.layers import latent_layers
from .attention.per_layer import Values
from .attention.shape import AttentionShape, standard_key_value_heads
from .config_view import ConfigView
from .size_names import (
    NAMES,
    O_BIAS,
    ONE_HEAD_WORDS,
    ONE_KEY_VALUE_HEAD,
    QK_NORMS,
    QKV_BIAS,
)
from .tensors.names import MLA_NAMES
from .unread.unread_keys import not_understood, of_wrappers

# Keys under which a wrapper nests its language model, the usual one first.
TEXT_KEYS = (
    *("text_config", "llm_config", "llm_cfg", "language_config", "language_model_config"),
    *("language_model", "language", "text_model_config", "text_model", "llm", "thinker_config"),
)
_WINDOW_FLAGS = ("use_sliding_window", "use_swa", "use_sliding_window_attention")
WINDOWS = ("sliding_window", "attention_chunk_size")
# Keys of encoders alone: segments of a text, and distances both ways.
_OF_ENCODERS = ("type_vocab_size", "type_vocab_sizes", "position_biased_input", "pos_att_type")
_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern")


def assumed(model_type: str, config: Mapping[str, Any], where: str) -> Architecture:
    """The architecture that the keys of `config` show.

    Raises UnsupportedModelError, which names the key that is not understood."""
    text = text_key(config)
    for key, why in not_understood(config) if text is None else of_wrappers(config):
        raise UnsupportedModelError(
            f"{where}: nothing describes model_type {model_type!r}, and its {key} {why}: it is not"
            " read by the standard names. `headcount families` lists what can be audited"
        )
    if text is not None:
        return Architecture(types=(model_type,), config=ConfigKeys(text=text))
    shape = _shape(config)
    latent = _is_latent(config)
    return Architecture(
        types=(model_type,),
        config=ConfigKeys(aliases=NAMES),
        attention=replace(shape, build=latent_layers) if latent else shape,
        tensors=MLA_NAMES if latent else None,
    )


def text_key(config: Mapping[str, Any]) -> str | None:
    """The key of the nested language model; None where the config is one itself."""
    return next((key for key in TEXT_KEYS if _holds_a_model(config.get(key))), None)


def _holds_a_model(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    names = ("model_type", "architectures", *TEXT_KEYS)
    sizes = (name for key in ("hidden_size", "num_hidden_layers") for name in (key, *NAMES[key]))
    return any(value.get(name) is not None for name in (*names, *sizes))


def _is_latent(config: Mapping[str, Any]) -> bool:
    return config.get("kv_lora_rank") is not None and config.get("use_mla") is not False


def _shape(config: Mapping[str, Any]) -> AttentionShape:
    norm = _flag(config, QK_NORMS)
    own_values = config.get("v_head_dim") is not None and not _is_latent(config)
    return AttentionShape(
        kinds=assumed_kinds,
        qkv_bias=_flag(config, QKV_BIAS),
        o_bias=_flag(config, O_BIAS),
        norm="none" if norm is False else "head",
        norm_if=True if norm is False else norm,
        key_value_heads=assumed_key_value_heads,
        v_head_dim="v_head_dim" if own_values else None,
        per_layer=_listed_heads if any(_lists(config)) else None,
        cached=encoder_key(config) is None,
    )


def _flag(config: Mapping[str, Any], names: tuple[str, ...]) -> str | bool:
    """The first of `names` that the config sets; False where it sets none."""
    return next((name for name in names if isinstance(config.get(name.lstrip("!")), bool)), False)


def encoder_key(config: Mapping[str, Any]) -> str | None:
    """The key that tells of an encoder, which keeps nothing: a class that fills gaps, tells
    segments of a text apart as BERT does, or counts distances both ways as DeBERTa does, sees both
    sides. None where no key does."""
    for key in ("is_causal", "causal"):
        if config.get(key) is False:
            return key
    if config.get("is_encoder") is True:
        return "is_encoder"
    if config.get("is_decoder") is not True:
        for key in _OF_ENCODERS:
            if config.get(key) is not None:
                return key
    if _BOTH_WAYS.search(str(config.get("model_type"))):
        return "model_type"
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else ""
    is_encoder = isinstance(first, str) and (
        first.endswith("ForMaskedLM") or _BOTH_WAYS.search(first) is not None
    )
    return "architectures" if is_encoder else None


# Of decoders that were made embedders (LlamaBidirectionalModel, bidir_mistral of NV-Embed).
_BOTH_WAYS = re.compile(r"bidir", re.IGNORECASE)


def window_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that say which layers have a window, as far as they say anything."""
    flag = next((key for key in _WINDOW_FLAGS if key in config), None)
    if flag is not None and not config[flag]:
        return (flag,)
    windows = tuple(key for key in WINDOWS if whole(config.get(key)))
    if windows and isinstance(config.get("layer_types"), list):
        return (*windows, "layer_types")
    telling = _PATTERNS if flag is None else (*_PATTERNS, "max_window_layers")
    return (
        *windows[:1],
        *(key for key in telling if windows and whole(config.get(key)) is not None),
    )


def _lists(config: Mapping[str, Any]) -> Iterator[str]:
    """Standard names of counts that the config gives for each layer by itself."""
    for name in ("num_attention_heads", "num_key_value_heads"):
        if any(isinstance(config.get(key), list) for key in (name, *NAMES[name])):
            yield name


def _listed_heads(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    lists = {name: view.integers(name, count=len(kinds)) or () for name in _lists(view.config)}
    return [{name: counts[i] for name, counts in lists.items()} for i in range(len(kinds))]


def assumed_key_value_heads(view: ConfigView, heads: int) -> int:
    """Their number by any of its names; else one for `multi_query` and its kin; else one per query
    head. A flag that is false switches off the number of groups beside it (ChatGLM)."""
    flag = _flag(view.config, ONE_KEY_VALUE_HEAD)
    said = view.flag(flag) if isinstance(flag, str) else None
    if said is False and view.config.get("num_key_value_heads") is None:
        return int(view.note("num_key_value_heads", heads, f"derived: {flag} is false"))
    inner = view.child("attn_config") if view.config.get("attn_config") is not None else None
    nested = inner.optional("kv_n_heads") if inner else None
    if nested is not None:
        return int(
            view.note("num_key_value_heads", nested, f"{view.where}: attn_config (kv_n_heads)")
        )
    words = [view.config.get("attention_head_type"), inner.get("attn_type") if inner else None]
    if view.optional("num_key_value_heads") is None and (
        said or not ONE_HEAD_WORDS.isdisjoint(map(str, words))
    ):
        return int(view.note("num_key_value_heads", 1, "derived: multi_query"))
    return standard_key_value_heads(view, heads)


def assumed_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`use_sliding_window` false switches the window off; `sliding_window_pattern` makes every
    n-th layer full; layers below `max_window_layers` see everything."""
    flag = next((key for key in _WINDOW_FLAGS if key in view.config), None)
    if flag is not None and not view.flag(flag):  # null is off, too
        view = view.overridden({"sliding_window": None})
    kinds = by_window(view, count)
    if SLIDING not in kinds:
        return kinds
    pattern = next((key for key in _PATTERNS if whole(view.config.get(key))), None)
    if pattern is not None:
        return full_every(view.integer(pattern))(view, count)
    first = view.optional("max_window_layers", minimum=0) or 0
    full = by_window(view.overridden({"sliding_window": None}), count)
    return (*full[:first], *kinds[first:])
