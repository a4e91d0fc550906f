"""An attention by its heads, and back: the values of the tensors that the map names.

`weights_of` reads an attention by its heads, and `tensors_of` is its inverse: torch operations
only, so that gradients pass. Between them nothing of a file's layout is known, nor of heads that
are pruned: those that stay are an attention by themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

import torch

from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import AttentionTensors, HeadTensors
from ..merge.attention_weights import AttentionWeights
from ..plan.heads import StayingHeads
from ..stream.head_layout import ByPart, join_heads, split_heads

Read = Callable[[TensorInfo], torch.Tensor]


def dtype_of(tensors: AttentionTensors) -> torch.dtype:
    """What the attention is computed in."""
    return torch.float64 if tensors.is_double else torch.float32


def weights_of(
    tensors: AttentionTensors, read: Read, staying: StayingHeads | None = None
) -> AttentionWeights:
    """The attention by its heads, in its `dtype_of`; only those that are `staying`. Where the
    values are the keys, v is k."""
    weights: ByPart = {}
    biases: ByPart = {}
    dtype = dtype_of(tensors)
    for projection in tensors.projections:
        into = biases if projection.is_bias else weights
        into |= split_heads(read(projection.tensor).to(dtype), projection.blocks)
    for held in (weights, biases) if staying is not None else ():
        held |= {part: heads[_places(staying, part)] for part, heads in held.items()}
    if not tensors.mixer.has_value:
        weights["v"] = weights["k"]
    bias = tensors.output_bias
    return AttentionWeights(
        q=weights["q"],
        k=weights["k"],
        v=weights["v"],
        o=weights["o"].transpose(1, 2),
        q_bias=biases.get("q"),
        k_bias=biases.get("k"),
        v_bias=biases.get("v"),
        o_bias=None if bias is None else read(bias).to(dtype),
    )


def key_value_heads(tensors: AttentionTensors, read: Read) -> Iterator[tuple[str, torch.Tensor]]:
    """`k` and `v` with [heads, rows, width], of the weights as they are stored."""
    for projection in tensors.projections:
        if not projection.is_bias and projection.has_key_value:
            held = split_heads(read(projection.tensor), projection.blocks)
            yield from ((part, held[part]) for part in projection.parts if part in ("k", "v"))


def tensors_of(
    tensors: AttentionTensors,
    weights: AttentionWeights,
    read: Read,
    order: Sequence[int] = (),
    groups: Sequence[int] = (),
    staying: StayingHeads | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of the source, by name, that hold `weights`; the inverse of `weights_of`.

    `order` are the K/V heads of the source in their new places, none: as they were; `groups` are
    runs of K/V heads that are equal. What stands beside the projections follows both: it is read.
    Where `weights` are of heads that are `staying` alone, these two are so, too, and the others are
    as they were but for their columns of o, which are zeros: what they give is not read.
    ValueError: a bias that there is no tensor for.
    """
    for part in "qkvo":
        if getattr(weights, f"{part}_bias") is not None and not tensors.has_bias(part):
            raise ValueError(f"there is no bias of {part} to hold what it should be")
    heads = tuple(order) or tuple(range(weights.k.shape[0]))
    query, dtype = weights.queries_of(heads), dtype_of(tensors)
    made: dict[str, torch.Tensor] = {}
    for projection in tensors.projections:
        held = _heads(projection, weights)
        if "g" in projection.parts or staying is not None:
            before = split_heads(read(projection.tensor).to(dtype), projection.blocks)
            if "g" in projection.parts:
                held["g"] = before["g"][_places(staying, "g")][query]
            if staying is not None:
                held = {p: _back(heads, before[p], staying, p) for p, heads in held.items()}
        made[projection.tensor.name] = join_heads(held, projection.blocks).to(dtype)
    if tensors.output_bias is not None:
        assert weights.o_bias is not None
        made[tensors.output_bias.name] = weights.o_bias.to(dtype)
    places = {"q": query, "k": list(heads), "v": list(heads)}
    for item in tensors.beside:
        if query != sorted(query) or (item.has_key_value and groups):
            values = [read(info).to(dtype) for info in item.tensors]
            made |= _moved(item, values, places, groups or (1,) * len(heads), staying)
    return made


def _places(staying: StayingHeads | None, part: str) -> slice | list[int]:
    """The numbers in the source of the heads of a part: those that stay, or all."""
    if staying is None:
        return slice(None)
    return list(staying.key_value if part in "kv" else staying.query)


def _back(
    heads: torch.Tensor, before: torch.Tensor, staying: StayingHeads, part: str
) -> torch.Tensor:
    """All heads of the source, of which those that stay are `heads` now."""
    all_heads = torch.zeros_like(before) if part == "o" else before
    places = torch.tensor(_places(staying, part))
    return all_heads.index_copy(0, places.to(all_heads.device), heads.to(all_heads.dtype))


def _heads(projection: HeadTensors, weights: AttentionWeights) -> ByPart:
    """The parts of one tensor, as they lie in it."""
    if projection.is_bias:
        found = {"q": weights.q_bias, "k": weights.k_bias, "v": weights.v_bias}
    else:
        output = weights.o.transpose(1, 2)
        found = {"q": weights.q, "k": weights.k, "v": weights.v, "o": output}
    return {p: heads for p in projection.parts if (heads := found.get(p)) is not None}


def _moved(
    item: HeadTensors,
    read: Sequence[torch.Tensor],
    places: Mapping[str, Sequence[int]],
    groups: Sequence[int],
    staying: StayingHeads | None,
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of `item` by name, with heads at new places (`places` of each part) and, where
    these are K or V heads, those of each run of `groups` equal: by their mean, as the plan would
    pool a norm of them. Heads that are not `staying` are as they were."""
    joined = torch.cat(list(read)) if len(read) > 1 else read[0]
    (part,) = item.parts
    before = split_heads(joined, item.blocks)[part]
    heads = before[_places(staying, part)][list(places[part])]
    if item.has_key_value:
        heads = _tied(heads, groups)
    if staying is not None:
        heads = _back(heads, before, staying, part)
    result = join_heads({part: heads}, item.blocks)
    sizes = [tensor.shape[0] for tensor in item.tensors]
    for tensor, start in zip(item.tensors, accumulate(sizes, initial=0), strict=False):
        whole = result if len(read) == 1 else result[start : start + tensor.shape[0]].clone()
        yield tensor.name, whole


def _tied(heads: torch.Tensor, groups: Sequence[int]) -> torch.Tensor:
    """[heads, rows, ...] with the mean of its run in place of each head."""
    wide = heads.double()
    means = [run.mean(0, keepdim=True).expand_as(run) for run in wide.split(list(groups))]
    return torch.cat(means).to(heads.dtype)
