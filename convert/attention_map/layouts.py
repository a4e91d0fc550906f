"""How heads lie in one tensor of an attention, by what it is and by its shape."""

from headcount.arch.tensors.blocks import Block, Blocks, fused, one_part
from headcount.arch.tensors.names import TensorNames
from headcount.arch.tensors.places import PLAIN_PARAMETERS, Place
from headcount.model.mixers import Attention

# What computes q, k, v and o, by the letters of what it holds; g is a gate on what o reads.
PROJECTIONS = ("q", "k", "v", "o", "kv", "qkv", "gqkv")
KEY_NORMS = ("k_norm", "norm_k", "k_layernorm", "key_layernorm")
QUERY_NORMS = ("q_norm", "norm_q", "q_layernorm", "query_layernorm", "attn_sub_norm")
# Norms of what o reads, not of q or k.
VALUE_NORMS = ("attn_sub_norm", "inner_attn_ln", "v_norm")
# Biases of the scores of each head by distance, [buckets, heads].
SCORE_TABLE = "relative_attention_bias"
# Modules beside the projections that have numbers for each query head, along their first axis.
PER_HEAD = ("sinks", "attention_sink_bias", "softmax_offset", "g_proj", "gate_proj", "gate_bias")
OF_NO_HEAD = Blocks(blocks=())


def layout_of(
    place: Place, shape: tuple[int, ...], count: int, mixer: Attention, names: TensorNames, qkv: str
) -> Blocks | None:
    """How heads lie in `count` tensors of `shape`, joined along their first axis; without blocks
    where they hold no numbers of single heads, None where that is not known.

    That of a projection follows from `mixer`, whatever its shape: see `HeadTensors.fits`. `qkv` is
    how a fused one lies, see `TensorNames.fused`.
    """
    part, parameter = place.part, place.parameter.rpartition(".")[2]
    if part == "":
        return OF_NO_HEAD
    if part is None or parameter not in PLAIN_PARAMETERS:
        return None
    if part in PROJECTIONS:
        transposed = names.transposed and parameter == "weight"
        return _projection(part, len(shape), mixer, qkv, transposed=transposed)
    if part == "norm":
        return _norm(place.module, shape, count, mixer)
    if place.module in names.key_value:
        return _beside_key_value(*names.key_value[place.module], shape, mixer)
    return _beside_query(place.module.rpartition(".")[2], shape, mixer.num_attention_heads)


def _projection(
    part: str, dimensions: int, mixer: Attention, qkv: str, *, transposed: bool
) -> Blocks:
    axis = -1 if transposed else 0
    heads = dict.fromkeys("qog", mixer.num_attention_heads)
    rows = {"q": mixer.head_dim, "k": mixer.head_dim}
    if part == "qkv":
        return fused(qkv, mixer, axis=axis)
    if part == "o":
        columns = one_part("o", heads["o"], mixer.v_head_dim, axis=0 if transposed else -1)
        return OF_NO_HEAD if dimensions == 1 else columns
    if part == "q" and mixer.query_gate:  # each query head, then its gate
        blocks = tuple(Block(part=p, heads=1, rows=mixer.head_dim) for p in "qg")
        return Blocks(blocks=blocks, axis=axis, repeats=heads["q"])
    return Blocks(
        blocks=tuple(
            Block(
                part=p,
                heads=heads.get(p, mixer.num_key_value_heads),
                rows=rows.get(p, mixer.v_head_dim),
            )
            for p in part
        ),
        axis=axis,
    )


def _norm(module: str, shape: tuple[int, ...], count: int, mixer: Attention) -> Blocks | None:
    """A norm shared by all heads, over all heads, with a row per head, or one of a list."""
    is_key = has_word(module, KEY_NORMS)
    heads = mixer.num_key_value_heads if is_key else mixer.num_attention_heads
    d = mixer.v_head_dim if has_word(module, VALUE_NORMS) else mixer.head_dim
    part = "k" if is_key else "q"
    if shape == (d,) and not count == heads > 1:
        return OF_NO_HEAD
    if shape in ((d,), (heads * d,)):
        return one_part(part, heads, d)
    return one_part(part, heads, 1) if shape == (heads, d) else None


def _beside_key_value(
    part: str, axis: int, shape: tuple[int, ...], mixer: Attention
) -> Blocks | None:
    """What convolves keys or values, say."""
    if axis >= len(shape):
        return None
    rows, rest = divmod(shape[axis], mixer.num_key_value_heads)
    return None if rest or not rows else one_part(part, mixer.num_key_value_heads, rows, axis=axis)


def _beside_query(word: str, shape: tuple[int, ...], heads: int) -> Blocks | None:
    if word == SCORE_TABLE:
        fits = len(shape) == 2 and shape[-1] == heads
        return one_part("q", heads, 1, axis=-1) if fits else None
    if word in PER_HEAD and shape and shape[0] % heads == 0:
        return one_part("q", heads, shape[0] // heads)
    return None


def has_word(module: str, words: tuple[str, ...]) -> bool:
    """Whether one of `words` stands in the module's path."""
    return any(word in words for word in module.split("."))
