"""A ModelSpec from the key-values of a GGUF file, whatever its architecture is called.

llama.cpp gives all architectures the same keys (gguf-py `constants.py`), so none needs a row. What
is in no key is in llama.cpp's loader of an architecture: every how many layers there is one without
a window (`set_swa_pattern` in src/models/).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from ..errors import InvalidConfigError, UnsupportedModelError
from ..mixers import Attention, LatentAttention, Mixer
from ..spec import Layer, ModelSpec, Origin
from .names import TensorNames
from .row import Family
from .view import MAX_LAYERS

GGUF_NAMES = TensorNames(
    modules={
        **{"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "attn_qkv": "qkv"},
        **{"attn_q_norm": "norm", "attn_k_norm": "norm", "attn_sinks": "other"},
        **{"attn_q_a": "q_a", "attn_q_b": "q", "attn_kv_a_mqa": "kv_a", "attn_kv_b": "kv_b"},
        # kv_b_proj, cut in two for multiplying it into q and o
        **{"attn_k_b": "kv_b", "attn_v_b": "kv_b"},
        **{"attn_q_a_norm": "norm", "attn_kv_a_norm": "norm"},
    }
)
GGUF_FAMILY = Family(names=GGUF_NAMES)

# architecture -> every n-th layer sees everything, the others a window
_FULL_EVERY = {
    **{"gemma2": 2, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4, "llama4": 4, "afmoe": 4},
    **{"gemma3": 6, "gemma-embedding": 6, "gemma3n": 5, "smallthinker": 4, "modern-bert": 3},
}
_FULL_FIRST = frozenset({"smallthinker", "modern-bert"})
_FIXED_WINDOWS = {"llama4": 8192, "smallthinker": 4096}  # whatever the key says, but 0
_DEFAULT_WINDOWS = {"llama4": 8192, "gemma2": 4096}
# Architectures for which llama.cpp makes no cache (create_memory in src/llama-model.cpp).
_NO_CACHE = frozenset(
    {
        *("bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe", "neo-bert"),
        *("modern-bert", "eurobert", "gemma-embedding", "dream", "llada", "llada-moe", "rnd1"),
    }
)
_ENCODERS_AND_TOWERS = frozenset({"t5", "t5encoder", "clip", "whisper"})
_MAX_SIZE = 10_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The key-values of one architecture, checked when they are asked for."""

    metadata: Mapping[str, Any]
    architecture: str
    where: str

    def get(self, name: str) -> Any:
        return self.metadata.get(f"{self.architecture}.{name}")

    def integer(self, name: str, default: int | None = None, limit: int = _MAX_SIZE) -> int | None:
        """A whole number in [0, limit]; a list of equal ones counts as one."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        return self._checked(name, value, limit)

    def need(self, name: str, limit: int = _MAX_SIZE) -> int:
        value = self.integer(name, None, limit)
        if not value:
            raise InvalidConfigError(f"{self.where}: no {self.architecture}.{name}")
        return value

    def per_layer(self, name: str, layers: int, default: int | None) -> list[int | None]:
        """One number per layer, from a number or a list of them."""
        value = self.get(name)
        if not isinstance(value, tuple):
            return [self.integer(name, default)] * layers
        if len(value) < layers:
            raise InvalidConfigError(
                f"{self.where}: {self.architecture}.{name} has {len(value)} values for"
                f" {layers} layers"
            )
        return [self._checked(name, item, _MAX_SIZE) for item in value[:layers]]

    def _checked(self, name: str, value: Any, limit: int) -> int:
        if type(value) not in (int, bool) or not 0 <= value <= limit:
            raise InvalidConfigError(
                f"{self.where}: {self.architecture}.{name} {value!r} is not a number"
                f" up to {limit:,}"
            )
        return int(value)


def gguf_spec(metadata: Mapping[str, Any], where: str) -> ModelSpec:
    """The layers that the key-values describe. Raises HeadcountError."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise InvalidConfigError(f"{where}: no general.architecture: this is not a model")
    if architecture in _ENCODERS_AND_TOWERS:
        raise UnsupportedModelError(
            f"{where}: general.architecture {architecture!r} is not counted: audit the model's"
            " Hugging Face config instead"
        )
    keys = Keys(metadata, architecture, where)
    layers = _layers(keys)
    hidden = keys.need("embedding_length")
    return ModelSpec(
        model_type=architecture,
        layers=layers,
        hidden_size=hidden,
        vocab_size=keys.integer("vocab_size") or _token_count(metadata),
        dtype="float16",  # of the cache, unless llama.cpp is told another by --cache-type-k/v
        max_position_embeddings=keys.integer("context_length"),
        encoder_tokens=0,
        tie_word_embeddings=True,
        origins=_origins(keys),
    )


def _token_count(metadata: Mapping[str, Any]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, tuple) else getattr(tokens, "count", None)


def _origins(keys: Keys) -> dict[str, Origin]:
    """For `--explain`: every short value of the architecture's keys."""
    prefix = keys.architecture + "."
    return {
        name.removeprefix(prefix): Origin(value=value, source=keys.where)
        for name, value in keys.metadata.items()
        if name.startswith(prefix) and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    """Whether JSON can say it: not for NaN, nor for what was too long to keep."""
    if isinstance(value, tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, int | str) or (isinstance(value, float) and isfinite(value))


def _layers(keys: Keys) -> tuple[Layer, ...]:
    count = keys.need("block_count", MAX_LAYERS) - (keys.integer("nextn_predict_layers") or 0)
    if count < 1:
        raise InvalidConfigError(f"{keys.where}: no layers but those for multi-token prediction")
    heads = keys.per_layer("attention.head_count", count, None)
    kv_heads = keys.per_layer("attention.head_count_kv", count, None)
    windows = _windows(keys, count)
    recurrent = _recurrent(keys, count)
    own = count - (keys.integer("attention.shared_kv_layers") or 0)
    if keys.architecture == "gemma3n" and own == count:
        own = min(20, count)  # what older files leave to the loader
    layers = [
        Layer(index=i, mixers=() if recurrent[i] else _mixers(keys, heads[i], kv_heads[i], window))
        for i, window in enumerate(windows)
    ]
    return tuple(_shared(layer, layers, own) for layer in layers)


def _recurrent(keys: Keys, count: int) -> list[bool]:
    """Qwen3-Next and its kin: every n-th layer attends, the others are linear attention."""
    interval = keys.integer("full_attention_interval") or 0
    if not interval and keys.integer("ssm.state_size") and keys.architecture == "qwen3next":
        interval = 4
    return [bool(interval) and (i + 1) % interval != 0 for i in range(count)]


def _mixers(keys: Keys, heads: int | None, kv: int | None, window: int | None) -> tuple[Mixer, ...]:
    """No mixer where a layer has no K/V heads: its state is recurrent."""
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
    rank = keys.integer("attention.kv_lora_rank")
    return (_latent(keys, heads, rank) if rank else _attention(keys, heads, kv, window),)


def _attention(keys: Keys, heads: int, kv: int, window: int | None) -> Attention:
    hidden = keys.need("embedding_length")
    ending = "_swa" if window and keys.get("attention.key_length_swa") is not None else ""
    key = keys.integer(f"attention.key_length{ending}", hidden // heads)
    value = keys.integer(f"attention.value_length{ending}", hidden // heads)
    if not key or not value:
        raise InvalidConfigError(f"{keys.where}: heads of no elements: key_length or value_length")
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=key,
        v_head_dim=value,
        window=window,
        cached=keys.get("attention.causal") is not False and keys.architecture not in _NO_CACHE,
    )


def _latent(keys: Keys, heads: int, rank: int) -> LatentAttention:
    """MLA. Files since 2025 have the lengths of a head in *_length_mla, older ones in *_length."""
    rope = keys.need("rope.dimension_count")
    key = keys.integer("attention.key_length_mla") or keys.need("attention.key_length")
    value = keys.integer("attention.value_length_mla") or keys.need("attention.value_length")
    if key <= rope:
        raise InvalidConfigError(f"{keys.where}: key length {key} leaves nothing beside {rope}")
    return LatentAttention(
        hidden_size=keys.need("embedding_length"),
        num_attention_heads=heads,
        q_lora_rank=keys.integer("attention.q_lora_rank") or None,
        kv_lora_rank=rank,
        qk_nope_head_dim=key - rope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
    )


def _windows(keys: Keys, count: int) -> list[int | None]:
    """The window of each layer. An architecture whose loader ignores the key has none."""
    size = keys.integer("attention.sliding_window", limit=2**31)
    if size is None:
        size = _DEFAULT_WINDOWS.get(keys.architecture)
    elif size:
        size = _FIXED_WINDOWS.get(keys.architecture, size)
    if not size:
        return [None] * count
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        flags = keys.per_layer("attention.sliding_window_pattern", count, None)
        return [size if flag else None for flag in flags]
    period = keys.integer("attention.sliding_window_pattern") or _FULL_EVERY.get(keys.architecture)
    if not period:
        return [None] * count
    full = 0 if keys.architecture in _FULL_FIRST else period - 1
    return [None if i % period == full else size for i in range(count)]


def _shared(layer: Layer, layers: list[Layer], own: int) -> Layer:
    """The last layers of Gemma 3n and 4 read the cache of the last one of their kind before."""
    if layer.index < own or not layer.mixers or own < 1:
        return layer
    (mixer,) = layer.mixers
    kind = [la.index for la in layers[:own] if la.mixers and la.mixers[0].window == mixer.window]
    if not kind or not isinstance(mixer, Attention):
        return layer
    return replace(layer, mixers=(replace(mixer, has_key_value=False),), shares_cache_with=kind[-1])
