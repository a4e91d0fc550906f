"""What was taken for granted where a type that nobody described was read by the words that configs
share: each fact with the key that says it, or that none does, and what speaks against it."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from headcount.model import limits
from headcount.model.errors import bounded
from headcount.model.mixers import Mixer
from headcount.model.numbers import whole
from headcount.model.spec import Assumption, Layer

from .assumed import encoder_key, window_keys
from .config_view import ConfigView
from .registry import is_known
from .size_names import names_of
from .unread.unheard_keys import unheard
from .unread.unread_keys import contradiction, sounding_of_attention

# A class whose name says that it decodes.
_DECODES = re.compile(r"(CausalLM|LMHead|ConditionalGeneration|Generation|Chat)")
_NAMED = 8  # of the keys that nobody knows
_SIZES = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")


def assumptions(
    view: ConfigView, text: ConfigView, layers: tuple[Layer, ...]
) -> tuple[Assumption, ...]:
    """Of a config in which `view` reads the whole and `text` the language model; empty where
    lineages describe both."""
    if is_known(text.model_type):
        if is_known(view.model_type):
            return ()
        return (Assumption("language model", text.model_type, text.where),)
    return tuple(_of_a_stranger(view, text, layers))


def _of_a_stranger(
    view: ConfigView, text: ConfigView, layers: tuple[Layer, ...]
) -> Iterator[Assumption]:
    mixers = tuple(dict.fromkeys(mixer for layer in layers for mixer in layer.mixers))
    yield _cache(view, text, mixers)
    yield _layers(text, len(layers))
    for name in _SIZES:
        values = dict.fromkeys(str(getattr(mixer, name)) for mixer in mixers)
        if name != "v_head_dim" or any(m.v_head_dim != m.head_dim for m in mixers):
            doubt = contradiction(text.config) if name == "num_key_value_heads" else None
            yield Assumption(name, ", ".join(values), _source(text, name), doubt)
    yield _windows(text, layers)
    yield from _context(text)
    yield Assumption("attention_parameters", _biases(mixers), "the flags of biases and norms")
    doubtful = sounding_of_attention(text.config)
    for key, why in islice(doubtful, limits.FINDINGS_OF_A_RULE.most):
        yield Assumption(bounded(key), "not understood", text.where, why)
    others = [bounded(key) for key in unheard(text.config)]
    if others:
        named = ", ".join(others[:_NAMED]) + (" …" if len(others) > _NAMED else "")
        doubt = f"no decoder or encoder of transformers has {named}"
        yield Assumption("other keys", f"{len(others)} not read", text.where, doubt)


def _source(text: ConfigView, name: str) -> str:
    origin = text.origins.get(name)
    return "its latent ranks" if origin is None else origin.source


def _cache(view: ConfigView, text: ConfigView, mixers: tuple[Mixer, ...]) -> Assumption:
    key = encoder_key(text.config)
    if key is not None:
        return Assumption("cache", "none: both sides are seen", f"{text.where} ({key})")
    kept = "keys and values of every layer"
    named = next((name for holder in (text, view) for name in _classes(holder)), None)
    if named is not None and _DECODES.search(named):
        return Assumption("cache", kept, f"architectures ({named})")
    doubt = f"architectures names {named or 'no class'}: an encoder would keep nothing"
    if text.config.get("is_decoder") is False:
        doubt = "is_decoder is false: an encoder would keep nothing"
    elif any(mixer.heads != "MHA" for mixer in mixers):
        return Assumption("cache", kept, "fewer K/V heads than query heads, to keep less")
    return Assumption("cache", kept, "no key says that both sides are seen", doubt)


def _classes(holder: ConfigView) -> list[str]:
    given: Any = holder.config.get("architectures")
    return [str(name)[:80] for name in given[:1]] if isinstance(given, list) else []


def _layers(text: ConfigView, count: int) -> Assumption:
    taken, key = f"{count}, each with one attention", "cross_attention_layers"
    null = f"{key} is null: the class may let some attend to an encoder"
    source = _source(text, "num_hidden_layers")
    return Assumption("layers", taken, source, null if key in text.config else None)


def _context(text: ConfigView) -> Iterator[Assumption]:
    """Where the file gives several lengths."""
    taken = text.optional("max_position_embeddings")
    for name in names_of("max_position_embeddings"):
        other = whole(text.config.get(name))
        if taken is not None and other not in (None, taken):
            source = _source(text, "max_position_embeddings")
            doubt = f"{name} says {other:,}"
            yield Assumption("max_position_embeddings", f"{taken:,}", source, doubt)


def _windows(text: ConfigView, layers: tuple[Layer, ...]) -> Assumption:
    windows = [mixer.window for layer in layers for mixer in layer.mixers]
    slide = [window for window in windows if window is not None]
    keys = window_keys(text.config)
    source = f"{text.where} ({', '.join(keys)})" if keys else "no key names one"
    if not slide:
        return Assumption("window", "none: every layer sees everything", source)
    layers_of = Counter(slide)
    each = ", ".join(f"{window:,} tokens in {n}" for window, n in layers_of.items())
    taken = f"{each} of {len(windows)} layers"
    most = text.optional("max_position_embeddings")
    never = most is not None and min(slide) >= most  # is one full
    return Assumption("window", taken, source, None if never else _doubt_of_windows(text, keys))


def _doubt_of_windows(text: ConfigView, keys: tuple[str, ...]) -> str | None:
    if "layer_types" in keys or keys[1:] == ("max_window_layers",):
        return None
    if len(keys) > 1:
        return f"classes read {keys[1]} each in its own way"
    null = "layer_types" in text.config  # a list is among the keys
    missing = "layer_types is null" if null else "no key says which layers"
    return f"{missing}: the class may choose others"


def _biases(mixers: tuple[Mixer, ...]) -> str:
    found = {part for mixer in mixers for part in "qkvo" if getattr(mixer, f"{part}_bias", False)}
    norms = any(getattr(mixer, "norm_parameters", 0) for mixer in mixers)
    words = [f"biases of {', '.join(p for p in 'qkvo' if p in found)}"] if found else ["no biases"]
    return ", ".join((*words, "norms of q and k" if norms else "no norms of q and k"))
