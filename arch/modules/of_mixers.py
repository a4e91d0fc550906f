"""The matrices of a layer's mixers: attention by its projections, recurrent ones by their form."""

from collections.abc import Iterator, Mapping

from headcount.model.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    LowRankAttention,
    Mixer,
    Recurrent,
)
from headcount.model.mixers.low_rank import DOWN
from headcount.model.spec import Layer

from ..tensors.names import TensorNames
from .module import Kind, Module

_LETTERS = "qkvo"


def mixer_modules(layer: Layer, names: TensorNames) -> Iterator[Module]:
    """All matrices of the layer's mixers, under the names of its type."""
    for mixer in layer.mixers:
        if not mixer.parameters().total:  # the weights of another layer run again
            continue
        own: Kind = "recurrent" if isinstance(mixer, Recurrent) else "attention"
        for path, part, rows, columns in _matrices(mixer, names):
            if rows > 0 and columns > 0:
                yield Module(
                    name=f"layers.{layer.stored_as}.{path}",
                    kind="other" if part == "compressor" else own,
                    part=part,
                    rows=rows,
                    columns=columns,
                    layer=layer.stored_as,
                )


_Matrix = tuple[str, str, int, int]  # path in the layer, part, rows, columns


def _matrices(mixer: Mixer, names: TensorNames) -> Iterator[_Matrix]:
    if isinstance(mixer, Recurrent):
        yield from _recurrent(mixer)
    elif isinstance(mixer, LatentAttention):
        yield from _latent(mixer, names)
    elif isinstance(mixer, CompressedAttention):
        yield from _compressed(mixer)
    else:
        yield from _projections(mixer, names)


def _projections(mixer: Attention, names: TensorNames) -> Iterator[_Matrix]:
    """q, k, v and o, or fused ones where the type has only these; the rest as one matrix of as many
    columns as the hidden size."""
    table = names.cross if isinstance(mixer, CrossAttention) else names.modules
    sizes = mixer.parameters()
    there = [letter for letter in _LETTERS if getattr(sizes, letter)]
    fused = _fused(table, there)
    if fused is not None:
        path, letters = fused
        yield path, letters, mixer.out_features(letters), mixer.in_features(letters)
        there = [letter for letter in there if letter not in letters]
    for letter in there:
        path = _path(table, letter, f"self_attn.{letter}_proj")
        yield path, letter, mixer.out_features(letter), mixer.in_features(letter)
    if isinstance(mixer, LowRankAttention):
        path = _path(table, DOWN, "self_attn.latent_proj")
        yield path, DOWN, mixer.out_features(DOWN), mixer.in_features(DOWN)
    yield "self_attn.other", "other", sizes.other // mixer.hidden_size, mixer.hidden_size


def _fused(table: Mapping[str, str], there: list[str]) -> tuple[str, str] | None:
    """The path and the parts of the projection that computes q, k and v together, where the table
    names it before one of q alone."""
    if not {"q", "k", "v"} <= set(there):
        return None
    first = next(((path, part) for path, part in table.items() if "q" in part), None)
    return first if first is not None and set(first[1]) == {"q", "k", "v"} else None


def _path(table: Mapping[str, str], part: str, otherwise: str) -> str:
    return next((path for path, found in table.items() if found == part), otherwise)


def _latent(mixer: LatentAttention, names: TensorNames) -> Iterator[_Matrix]:
    """The ways down to the latents and up from them; an indexer is the rest."""
    table = dict(names.modules)
    if mixer.q_lora_rank is not None:
        yield _at(mixer, "q_a", _path(table, "q_a", "self_attn.q_a_proj"))
        yield _at(mixer, "q", "self_attn.q_b_proj", name="q_b")
    else:
        yield _at(mixer, "q", "self_attn.q_proj")
    if mixer.has_latent:
        yield _at(mixer, "kv_a", _path(table, "kv_a", "self_attn.kv_a_proj_with_mqa"))
    yield _at(mixer, "kv_b", _path(table, "kv_b", "self_attn.kv_b_proj"))
    yield _at(mixer, "o", _path(table, "o", "self_attn.o_proj"))
    hidden = mixer.hidden_size
    yield "self_attn.indexer.wq_b", "indexer", mixer.other_parameters // hidden, hidden


def _at(mixer: LatentAttention, part: str, path: str, *, name: str | None = None) -> _Matrix:
    return path, name or part, mixer.out_features(part), mixer.in_features(part)


def _compressed(mixer: CompressedAttention) -> Iterator[_Matrix]:
    """DeepSeek-V4, by the names of its files. The compressors read the hidden state."""
    heads, d, hidden = mixer.num_attention_heads, mixer.head_dim, mixer.hidden_size
    low = mixer.o_groups * mixer.o_lora_rank
    yield "attn.wq_a", "q_a", mixer.q_lora_rank, hidden
    yield "attn.wq_b", "q", heads * d, mixer.q_lora_rank
    yield "attn.wkv", "k", d, hidden
    yield "attn.wo_a", "o_a", low, heads * d // mixer.o_groups
    yield "attn.wo_b", "o", hidden, low
    indexer = mixer.index_n_heads * mixer.index_head_dim
    yield "attn.indexer.wq_b", "indexer", indexer, mixer.q_lora_rank
    rest = mixer.parameters().other - indexer * mixer.q_lora_rank
    yield "attn.compressor.wkv", "compressor", max(0, rest) // hidden, hidden


def _recurrent(mixer: Recurrent) -> Iterator[_Matrix]:
    """By the form, where its state tells the width of the convolution; else one matrix."""
    hidden, heads = mixer.hidden_size, mixer.num_attention_heads
    inner = (heads or 0) * (mixer.v_head_dim or mixer.head_dim or 0)
    channels = _channels(mixer)
    if mixer.form == "gated delta net" and channels and heads:
        yield "linear_attn.in_proj_qkv", "qkv", channels, hidden
        yield "linear_attn.in_proj_z", "in", inner, hidden
        yield "linear_attn.in_proj_b", "step", heads, hidden
        yield "linear_attn.in_proj_a", "step", heads, hidden
        yield "linear_attn.out_proj", "out", hidden, inner
    elif mixer.form == "Mamba-2" and channels and heads:
        yield "mixer.in_proj", "in", inner + channels + heads, hidden
        yield "mixer.out_proj", "out", hidden, inner
    elif mixer.form == "Kimi delta attention":  # named as attention is, in files too
        yield "self_attn.q_proj", "in", (mixer.weights - mixer.biases) // hidden, hidden
    else:
        yield "mixer.in_proj", "in", (mixer.weights - mixer.biases) // hidden, hidden


def _channels(mixer: Recurrent) -> int | None:
    """Of the convolution, whose state has a column for each element of its kernel."""
    kept = next((state for state in mixer.states if state.columns), None)
    return None if kept is None or kept.columns is None else kept.fixed // kept.columns
