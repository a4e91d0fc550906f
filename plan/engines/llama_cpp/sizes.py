"""The sizes that the tensors of llama.cpp's graphs are products of, by short names.

Of a layer: `E` the hidden size, `V` the vocabulary, `V-` what the output lacks of it, `H` query
heads and `G` key/value heads of `dk` and `dv` elements, of which `rot` are rotated, `FF` the width
of the MLP, `X` experts of `fe`, of which a token visits `used`, `SH` the width beside them, `N` the
tokens that T5's encoder may have read; by their own names other keys of a GGUF file
(`ssm.state_size`) and sides of a layer's tensors (`attn_qkv.1` are the rows of attn_qkv).
Of a start: `T` tokens of a micro-batch, of which `O` are outputs, of `S` sequences (of `slots`; of
`rest` it has none); `C` cells, and `W` in layers with a window, of `R` streams; `CR` cells of
entries that stand for several tokens, of which `NB` are made (outside the layers: for the most
tokens of any layer; `CL` and `NL` for the fewest); `PP` pools of tokens that an indexer chooses of,
of which `PN` are made and it chooses `PC`, with `PS` tokens, and `KT` what a pool has beside the
last of its tokens.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .slots import Layout, padded

# Keys that say how the graph is made rather than how large its tensors are, or that have a short
# name; and those that count what no tensor is as large as.
_NOT_SIZES = re.compile(
    r"context_length|block_count|epsilon|sliding_window|gating_func|tokenizer|interval|leading_"
    r"|interleave_|_cycles|per_stack|iterations|buckets|hash_layer|magnitude|nextn|vocab_size"
    r"|^rope\.dimension_sections|shared_kv_layers|freq_base|^(embedding|feed_forward)_length$"
    r"|^expert_(count|used_count|feed_forward_length|shared_count|group)|^attention\.(head_count"
    r"|head_count_kv|key_length|value_length)$|^rope\.dimension_count$|indexer\.top_k$"
    r"|per_layer_input$"
)
_ROTATIONS = (512, 256, 128, 64)  # sides of a matrix that turns heads before they are quantised
OUTER = 0  # the number of the sizes outside the layers
_RATE = "attention.compress_ratios"  # tokens that an entry of a layer stands for
_PAD = 64  # tokens of a sequence that linear attention takes at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSizes:
    """`holds` says what the layer has: attention, recurrent, mlp, experts, and parallel where
    attention and MLP stand side by side; `sizes` by their names, in order."""

    holds: frozenset[str]
    sizes: tuple[tuple[str, int], ...]
    window: int | None = None


class Kind(NamedTuple):
    """A layer: `sizes` is the number of its sizes, which layers that are alike share, from 1 on;
    `used` are the experts that a token visits."""

    sizes: int
    holds: frozenset[str]
    windowed: bool
    used: int


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class GraphSizes:
    """Of a model: the sizes outside its layers, those that layers have (of `kinds` the first are
    number 1), and the window of those that have one."""

    outer: Mapping[str, int]
    layers: tuple[Mapping[str, int], ...]
    kinds: tuple[Kind, ...]
    window: int | None


def graph_sizes(outer: Mapping[str, int], layers: Sequence[LayerSizes]) -> GraphSizes:
    different = list(dict.fromkeys(layer.sizes for layer in layers))
    every = [dict(own) for own in different]
    at = {own: number for number, own in enumerate(different)}
    kinds = (
        Kind(
            sizes=1 + at[layer.sizes],
            holds=layer.holds,
            windowed=layer.window is not None,
            used=every[at[layer.sizes]].get("used", 1),
        )
        for layer in layers
    )
    return GraphSizes(
        outer=outer,
        layers=tuple(every),
        kinds=tuple(kinds),
        window=next((layer.window for layer in layers if layer.window), None),
    )


def held_of(names: Iterable[str], keys: Mapping[str, Any]) -> frozenset[str]:
    """By the names of a layer's tensors in a GGUF file, without `blk.0.`, and by its keys."""
    found = {"parallel"} if keys.get("use_parallel_residual") else set()
    for name in names:
        if re.match(r"(ssm_|shortconv|time_mix)", name):
            found.add("recurrent")
        elif re.match(r"attn_(output|out|o)(_a)?\.", name):
            found.add("attention")
        elif re.match(r"ffn_\w+_exps", name):
            found.add("experts")
        elif re.match(r"ffn_(up|down|gate)\.|channel_mix", name):
            found.add("mlp")
    return frozenset(found)


def file_sizes(
    keys: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], layer: int | None
) -> dict[str, int]:
    """Of a GGUF file: its keys, without that of the architecture, and the shapes of a layer's
    tensors (columns last), without `blk.0.` and `.weight`; None: of the tensors outside."""

    def key(name: str, default: int | None = None) -> int | None:
        found = keys.get(name, default)
        if isinstance(found, (tuple, list)):
            found = max(found) if layer is None else (*found, *[None] * layer)[layer]
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    hidden, heads = key("embedding_length"), key("attention.head_count") or 0
    each = (hidden or 0) // max(1, heads)
    own: dict[str, int | None] = {
        "E": hidden,
        "V": key("vocab_size"),
        "H": heads,
        "G": key("attention.head_count_kv", heads),
        "dk": key("attention.key_length", each),
        "dv": key("attention.value_length", each),
        "FF": key("feed_forward_length"),
        "X": key("expert_count"),
        "fe": key("expert_feed_forward_length"),
        "used": key("expert_used_count"),
    }
    if "attention.relative_buckets_count" in keys:
        own["N"] = key("context_length")
    own["rot"] = key("rope.dimension_count", own["dk"])
    own["KR"] = rotation(own["dk"] or 0)
    others = {name: key(name) for name in keys if not _NOT_SIZES.search(name)}
    sides = {
        f"{name}.{side}": size
        for name, shape in shapes.items()
        for side, size in enumerate(reversed(shape))
    }
    own["SH"] = sides.get("ffn_up_shexp.1")
    own["V-"] = (own["V"] or 0) - sides.get("output.1", own["V"] or 0)
    own["K"] = key("attention.indexer.top_k")
    if pooled := key("attention.indexer.kpool"):
        own["KT"] = pooled - 1
        own["KS"] = pooled - 1 if keys.get("attention.indexer.kpool_select_tail") else None
    if layer is None and (rates := list(filter(None, keys.get(_RATE) or ()))):
        own[f"{_RATE}.least"] = min(rates)
    found = {**sides, **others, **own}
    return {name: size for name, size in found.items() if size or (name == "G" and size == 0)}


def rotation(head: int) -> int | None:
    """Elements of the matrix that turns heads of this size (llama_kv_cache::build_input_k_rot)."""
    return next((side * side for side in _ROTATIONS if head % side == 0), None)


def layout_of(architecture: str, layout: Layout) -> Layout:
    """DeepSeek-V4's caches are those of each slot, whatever is shared (llama_kv_cache_dsv4)."""
    return replace(layout, streams=layout.count) if architecture == "deepseek4" else layout


def _compressed(layout: Layout, tokens: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Entries that stand for several tokens (dsv4_build_comp_plan of llama-kv-cache-dsv4.cpp)."""
    found: dict[str, int] = {}
    for entries, made, name in (("CR", "NB", _RATE), ("CL", "NL", f"{_RATE}.least")):
        if rate := sizes.get(name):
            found[entries] = padded(-(-layout.cells // rate))
            found[made] = tokens // rate + layout.count
    return found


def _pooled(layout: Layout, each: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Where an indexer chooses pools of so many tokens `each` (llama_memory_hybrid_idx_context)."""
    made = layout.cells // each * layout.count
    pools = _PAD * (made // _PAD + 1)
    chosen = min(pools, sizes.get("K", 0) // each)
    return {
        **{"PN": made, "PP": pools, "PC": chosen},
        "PS": each * chosen + sizes.get("KS", 0),
    }


def start_sizes(
    layout: Layout, tokens: int, outputs: int, window: int | None, sizes: Mapping[str, int]
) -> dict[str, int]:
    """Of a start, and what follows from it for the states that `sizes` tell of."""
    sequences, slots = layout.sequences, layout.count
    tokens = -(-tokens // sequences) * sequences
    kernel = sizes.get("ssm.conv_kernel") or sizes.get("shortconv.l_cache") or 0
    state = next(
        (sizes[n] for n in ("ssm.state_size", "kda.head_dim", "wkv.head_size") if n in sizes), 0
    )
    chunks = -(-(tokens // sequences) // _PAD) * sequences
    each = sizes.get("attention.indexer.kpool")
    return {
        **_compressed(layout, tokens, sizes),
        **(_pooled(layout, each, sizes) if each else {}),
        "T": tokens,
        "O": outputs,
        "S": sequences,
        "slots": slots,
        "rest": slots - sequences,
        "R": layout.streams,
        "C": layout.cells,
        "W": layout.cells_within(window),
        "tail": sequences * (kernel - 1),
        "slotstail": slots * (kernel - 1),
        "restail": (slots - sequences) * (kernel - 1),
        "conv": tokens + sequences * (kernel - 1),
        "scan": tokens + sequences * state,
        "N64": chunks,
        "T64": chunks * _PAD,
        "T/S": tokens // sequences,
        "K": min(sizes.get("K", 0), layout.cells),
    }
