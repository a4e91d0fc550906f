"""Files of several stacks: T5, Whisper, and the vision and audio towers of an mmproj file."""

from dataclasses import replace

from headcount.model import limits
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, CrossAttention, State
from headcount.model.spec import Layer

from .keys import Keys


def _attention(keys: Keys, *, cached: bool) -> Attention:
    hidden, heads = keys.need("embedding_length"), keys.need("attention.head_count")
    kv = keys.integer("attention.head_count_kv") or heads
    own = keys.integer("attention.head_dim") or keys.integer("attention.key_length")
    dim = own or hidden // heads
    if heads % kv or not dim:
        raise InvalidConfigError(
            f"{keys.where}: {keys.architecture} has {heads} heads, {kv} K/V heads and"
            f" embedding_length {hidden}, which do not go together"
        )
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=dim,
        v_head_dim=keys.integer("attention.value_length") or dim,
        cached=cached,
    )


def _cross(own: Attention, *, cached: bool) -> CrossAttention:
    return CrossAttention(
        hidden_size=own.hidden_size,
        num_attention_heads=own.num_attention_heads,
        num_key_value_heads=own.num_key_value_heads,
        head_dim=own.head_dim,
        v_head_dim=own.v_head_dim,
        cached=cached,
    )


def _stack(name: str, mixer: Attention, count: int) -> tuple[Layer, ...]:
    return tuple(Layer(index=i, stack=name, mixers=(mixer,)) for i in range(count))


def t5_stacks(keys: Keys) -> tuple[tuple[Layer, ...], int]:
    """llama.cpp keeps no K/V of the cross-attention: each step computes them from the encoder's
    output, which stays in memory as float32 (`llama_cross` in src/llama-graph.h)."""
    encoder = t5_encoder_stack(keys)[0]
    count = keys.integer("decoder_block_count", len(encoder), limits.LAYERS.most) or 0
    own = _attention(keys, cached=True)
    cross = _cross(own, cached=False)
    kept = State(per_token=own.hidden_size, bits=32, sees="encoder")
    decoder = tuple(
        Layer(index=i, mixers=(own, replace(cross, states=() if i else (kept,))))
        for i in range(count)
    )
    return (*encoder, *decoder), own.hidden_size


def t5_encoder_stack(keys: Keys) -> tuple[tuple[Layer, ...], int]:
    mixer = _attention(keys, cached=False)
    return _stack("encoder", mixer, keys.need("block_count", limits.LAYERS.most)), mixer.hidden_size


def whisper_stacks(keys: Keys) -> tuple[tuple[Layer, ...], int]:
    """The keys of ggml's docs/gguf.md. K/V of the cross-attention are cached, as in transformers
    and in whisper.cpp."""
    sides = {
        side: Keys(keys.metadata, f"{keys.architecture}.{side}", keys.where)
        for side in ("encoder", "decoder")
    }
    encoder = _attention(sides["encoder"], cached=False)
    own = _attention(sides["decoder"], cached=True)
    count = sides["decoder"].need("block_count", limits.LAYERS.most)
    cross = replace(_cross(own, cached=True), key_value_size=encoder.hidden_size)
    decoder = tuple(Layer(index=i, mixers=(own, cross)) for i in range(count))
    stack = _stack("encoder", encoder, sides["encoder"].need("block_count", limits.LAYERS.most))
    return (*stack, *decoder), own.hidden_size


def clip_towers(keys: Keys) -> tuple[tuple[Layer, ...], int]:
    """A projector file (mmproj) holds a vision tower, an audio tower, or both."""
    layers: tuple[Layer, ...] = ()
    for side in ("vision", "audio"):
        tower = Keys(keys.metadata, f"{keys.architecture}.{side}", keys.where)
        count = tower.integer("block_count", 0, limits.LAYERS.most)
        if count:
            layers += _stack(side, _attention(tower, cached=False), count)
    if not layers:
        raise InvalidConfigError(
            f"{keys.where}: neither clip.vision.block_count nor clip.audio.block_count: no tower"
        )
    return layers, max(mixer.hidden_size for layer in layers for mixer in layer.mixers)
