"""What stands beside the projections of an attention and has numbers for each head.

Such a tensor follows its heads where these change places. A norm of K heads, or a convolution of
them, is also made equal where heads are: by their mean, as the plan would pool it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from headcount.arch.tensors.names import TensorNames
from headcount.audit.census import Placed
from headcount.model.mixers import Attention
from headcount.sources.safetensors import TensorInfo

from ..plan.layout import Blocks, one_part
from ..plan.native import KEY_NORMS
from ..plan.padding import PER_HEAD
from ..stream.head_layout import join_heads, split_heads

# Norms of what o reads, not of q or k.
VALUE_NORMS = ("attn_sub_norm", "inner_attn_ln", "v_norm")
# Biases of the scores of each head by distance, [buckets, heads]; see `tables`.
SCORE_TABLE = "relative_attention_bias"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Numbers of each head of `part` (q, k or v). Several tensors are read as one, joined along
    their first axis: a list of norms. `tied`: equal K/V heads need equal numbers."""

    module: str
    tensors: tuple[TensorInfo, ...]
    layout: Blocks
    tied: bool

    @property
    def part(self) -> str:
        return self.layout.blocks[0].part


def beside(
    placed: Iterable[Placed], mixer: Attention, names: TensorNames
) -> tuple[tuple[Beside, ...], tuple[str, ...]]:
    """What is known beside the projections, and the modules that are not known well enough for
    heads to change places. Norms that all heads share are neither."""
    found: dict[tuple[str, str], dict[int, Placed]] = {}
    for item in placed:
        number, _, parameter = item.place.parameter.rpartition(".")
        key = item.place.module, parameter
        found.setdefault(key, {})[int(number) if number.isdecimal() else 0] = item
    known, unknown = [], []
    for (module, _), items in found.items():
        tensors = tuple(items[number].tensor for number in sorted(items))
        layout = _layout(module, next(iter(items.values())), tensors, mixer, names)
        if layout is None:
            unknown.append(module)
        elif layout.blocks:
            tied = layout.blocks[0].part != "q"
            known.append(Beside(module=module, tensors=tensors, layout=layout, tied=tied))
    return tuple(known), tuple(unknown)


def _layout(
    module: str,
    item: Placed,
    tensors: tuple[TensorInfo, ...],
    mixer: Attention,
    names: TensorNames,
) -> Blocks | None:
    """How heads lie in it; without blocks where it has no numbers of single heads, None where that
    is not known."""
    shape, last = item.tensor.shape, module.rpartition(".")[2]
    if module in names.key_value and item.place.part != "norm":
        part, axis = names.key_value[module]
        rows, rest = divmod(shape[axis], mixer.num_key_value_heads)
        return None if rest else one_part(part, mixer.num_key_value_heads, rows, axis=axis)
    if item.place.part == "norm":
        return _norm(module, shape, len(tensors), mixer)
    heads = mixer.num_attention_heads
    if last == SCORE_TABLE:
        fits = len(shape) == 2 and shape[-1] == heads
        return one_part("q", heads, 1, axis=-1) if fits else None
    if last in PER_HEAD and shape and shape[0] % heads == 0:
        return one_part("q", heads, shape[0] // heads)
    return None


def _norm(module: str, shape: tuple[int, ...], count: int, mixer: Attention) -> Blocks | None:
    """A norm shared by all heads, over all heads, with a row per head, or one of a list."""
    words, d = module.split("."), mixer.head_dim
    is_key = any(word in KEY_NORMS for word in words)
    if any(word in VALUE_NORMS for word in words):
        d = mixer.v_head_dim
    heads = mixer.num_key_value_heads if is_key else mixer.num_attention_heads
    part = "k" if is_key else "q"
    if count == heads > 1 and shape == (d,):
        return one_part(part, heads, d)
    if shape == (d,):
        return Blocks(blocks=())
    if shape == (heads * d,):
        return one_part(part, heads, d)
    return one_part(part, heads, 1) if shape == (heads, d) else None


def moved(
    item: Beside,
    read: Sequence[torch.Tensor],
    places: Mapping[str, Sequence[int]],
    groups: Sequence[int],
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of `item` by name, with heads at new places (`places` of each part) and, where
    they must agree, the heads of each run of `groups` equal."""
    joined = torch.cat(list(read)) if len(read) > 1 else read[0]
    heads = split_heads(joined, item.layout)[item.part][list(places[item.part])]
    if item.tied:
        heads = tied(heads, groups)
    result = join_heads({item.part: heads}, item.layout)
    sizes = [tensor.shape[0] for tensor in item.tensors]
    for tensor, start in zip(item.tensors, accumulate(sizes, initial=0), strict=False):
        whole = result if len(read) == 1 else result[start : start + tensor.shape[0]].clone()
        yield tensor.name, whole


def tied(heads: torch.Tensor, groups: Sequence[int]) -> torch.Tensor:
    """[heads, rows, ...] with the mean of its run in place of each head."""
    wide = heads.double()
    means = [run.mean(0, keepdim=True).expand_as(run) for run in wide.split(list(groups))]
    return torch.cat(means).to(heads.dtype)
