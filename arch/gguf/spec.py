"""The layers of a language model, from the key-values that all architectures share."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from headcount.model import limits
from headcount.model.errors import InvalidConfigError, UnsupportedModelError
from headcount.model.mixers import Attention, LatentAttention, Mixer, State
from headcount.model.spec import Layer, ModelSpec

from ..attention.drafts import reading_two
from ..registry import gguf_of
from .form import Gguf
from .indexers import indexer_states
from .keys import Keys
from .states import recurrent_mixers
from .windows import windows

# Of llama.cpp's cache, whatever the types of the weights, unless --cache-type-k/v say otherwise.
CACHE_DTYPE: Literal["float16"] = "float16"
CACHE_DTYPE_SOURCE = "llama.cpp's default"


def gguf_spec(metadata: Mapping[str, Any], where: str) -> ModelSpec:
    """The layers that the key-values describe. Raises HeadcountError."""
    if metadata.get("general.type") == "adapter":
        raise UnsupportedModelError(
            f"{where}: this is an adapter (general.type), which adds to a model's matrices and has"
            " no layers of its own: audit the GGUF file of the model that it is for"
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise InvalidConfigError(f"{where}: no general.architecture: this is not a model")
    keys = Keys(metadata, architecture, where)
    form = gguf_of(architecture)
    if form.reads is not None:
        layers, hidden = form.reads(keys)
    else:
        layers, hidden = _layers(form, keys), keys.need("embedding_length")
    return ModelSpec(
        model_type=architecture,
        layers=layers,
        hidden_size=hidden,
        vocab_size=keys.integer("vocab_size") or _token_count(metadata),
        dtype=CACHE_DTYPE,
        dtype_source=CACHE_DTYPE_SOURCE,
        max_position_embeddings=_context(keys),
        encoder_tokens=0,
        tie_word_embeddings=True,
        origins=keys.origins(),
    )


def _context(keys: Keys) -> int | None:
    return keys.integer("context_length") or keys.integer("decoder.context_length")


def _token_count(metadata: Mapping[str, Any]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    # One that was too long to keep has a count; a string, which is no list of tokens, a method.
    count = len(tokens) if isinstance(tokens, tuple) else getattr(tokens, "count", None)
    return count if isinstance(count, int) else None


def _layers(form: Gguf, keys: Keys) -> tuple[Layer, ...]:
    passes = _passes(form, keys)
    count = len(passes)
    heads = keys.per_layer("attention.head_count", count, None)
    kv_heads = keys.per_layer("attention.head_count_kv", count, None)
    seen, indexers = windows(form, keys, count), indexer_states(form, keys, count)
    recurrent = recurrent_mixers(form, keys, kv_heads)
    beside = form.recurrence is not None and form.recurrence.beside
    layers = []
    for i in range(count):
        mixers: tuple[Mixer, ...] = () if recurrent[i] is None else (recurrent[i],)  # type: ignore[assignment]
        if not mixers or beside:
            attending = _attending(form, keys, heads[i], kv_heads[i], seen[i], indexers[i])
            mixers = (*(_again(mixer, passes[i] - 1) for mixer in attending), *mixers)
        layers.append(Layer(index=i, mixers=mixers))
    if form.drafts:
        layers[0] = reading_two(layers[0])
    own = count - keys.number("attention.shared_kv_layers")
    if own == count and form.caching_layers is not None:
        own = min(count, form.caching_layers)
    return tuple(_shared(layer, layers, own) for layer in layers)


def _passes(form: Gguf, keys: Keys) -> list[int]:
    """How often each layer of the file is run for a token. llama.cpp gives each pass a cache of its
    own (load_arch_hparams of Nanbeige and HRM-Text)."""
    count = keys.need("block_count", limits.LAYERS.most) - keys.number("nextn_predict_layers")
    if count < 1:
        raise InvalidConfigError(f"{keys.where}: no layers but those for multi-token prediction")
    if form.passes is not None:
        return form.passes(keys, count)
    return [keys.integer("num_loops", 1, limits.LAYERS.most) or 1] * count


def _again(mixer: Attention | LatentAttention, times: int) -> Attention | LatentAttention:
    """`mixer` with the caches of `times` more passes through its layer."""
    if times < 1:
        return mixer
    size = mixer.key_value_elements(1)
    values = mixer.num_key_value_heads * mixer.v_head_dim if type(mixer) is Attention else 0
    limit = None if mixer.window is None else mixer.window - 1
    more = (
        state._replace(
            fixed=times * state.fixed,
            per_token=times * state.per_token,
            values=times * state.values,
        )
        for state in (State(per_token=size, limit=limit, values=values), *mixer.states)
    )
    return replace(mixer, states=(*mixer.states, *more))


def _attending(
    form: Gguf,
    keys: Keys,
    heads: int | None,
    kv: int | None,
    window: int | None,
    states: tuple[State, ...],
) -> tuple[Attention | LatentAttention, ...]:
    """No mixer where a layer has no heads: it is an MLP, or its attention was taken out."""
    if heads is None:
        raise InvalidConfigError(
            f"{keys.where}: no {keys.architecture}.attention.head_count: is this a model?"
        )
    kv = heads if kv is None else kv
    if heads == 0 or kv == 0:
        return ()
    if heads % kv:
        raise InvalidConfigError(
            f"{keys.where}: {heads} heads cannot share {kv} K/V heads: not a divisor"
        )
    if keys.number("attention.kv_lora_rank"):
        return (_latent(keys, heads, window, states),)
    return (_attention(form, keys, heads, kv, window, states),)


def _length(keys: Keys, name: str, window: int | None, default: int | None = None) -> int:
    """A size of one head; layers with a window may have their own, `*_swa`."""
    own = keys.integer(f"attention.{name}_swa") if window else None
    return (keys.integer(f"attention.{name}", default) or 0) if own is None else own


def _attention(
    form: Gguf, keys: Keys, heads: int, kv: int, window: int | None, states: tuple[State, ...]
) -> Attention:
    hidden = keys.need("embedding_length")
    key = _length(keys, "key_length", window, hidden // heads)
    value = _length(keys, "value_length", window, hidden // heads)
    if not key or not value:
        raise InvalidConfigError(f"{keys.where}: heads of no elements: key_length or value_length")
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=key,
        v_head_dim=value,
        window=window,
        query_gate=form.query_gate,
        cached=keys.get("attention.causal") is not False and form.cached,
        states=states,
    )


def _latent(
    keys: Keys, heads: int, window: int | None, states: tuple[State, ...]
) -> LatentAttention:
    """MLA. A file that has no lengths in *_length_mla, as those before April 2025, is run as plain
    attention: K and V of every head are cached."""
    rope = _rotated(keys)
    mla = _length(keys, "key_length_mla", window)
    key = mla or keys.need("attention.key_length")
    value = _length(keys, "value_length_mla", window) or keys.need("attention.value_length")
    if key <= rope:
        raise InvalidConfigError(f"{keys.where}: key length {key} leaves nothing beside {rope}")
    return LatentAttention(
        hidden_size=keys.need("embedding_length"),
        num_attention_heads=heads,
        q_lora_rank=keys.integer("attention.q_lora_rank") or None,
        kv_lora_rank=_length(keys, "kv_lora_rank", window),
        qk_nope_head_dim=key - rope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
        window=window,
        expanded=not mla,
        states=states,
    )


def _rotated(keys: Keys) -> int:
    """Elements of a latent's key that are rotated; 0 is a file's own word for none."""
    found = keys.integer("rope.dimension_count")
    return keys.need("rope.dimension_count") if found is None else found


def _shared(layer: Layer, layers: list[Layer], own: int) -> Layer:
    """The last layers of Gemma 3n and 4 read the cache of the last one of their kind before."""
    if layer.index < own or not layer.mixers or own < 1:
        return layer
    mixer = layer.mixers[0]
    kind = [la.index for la in layers[:own] if la.mixers and la.mixers[0].window == mixer.window]
    if not kind or type(mixer) is not Attention:
        return layer
    return replace(layer, mixers=(replace(mixer, has_key_value=False),), shares_cache_with=kind[-1])
