"""vLLM's K/V blocks: page sizes, layer groups, how many blocks there are and what a request takes.

A block is a page of one layer group: `block_size` tokens of each of the group's layers. The rules
are those of vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py, by version. Cached
prefixes live in the same blocks: prefix caching changes none of these figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, lcm

from ..layers import LayerCache
from ..version import Version

# Beside recurrent state, kernels take K/V in multiples of so many tokens; MLA's in larger ones, of
# which a block holds an even number since 0.27.
_KERNEL_BLOCK, _LATENT_BLOCK = 16, 64
_LATENT_128_SINCE = (0, 27)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRequest:
    """A request of `tokens` tokens, `in_flight` of which may be scheduled and not yet done.

    `context_ranks` share the tokens of layers that keep all of them (decode and prefill context
    parallel). `state_blocks` are those of recurrent state, None: as many as its tokens fill and
    `speculated` more.
    """

    tokens: int
    in_flight: int
    encoder_tokens: int = 0
    context_ranks: int = 1
    state_blocks: int | None = 1
    speculated: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """Layers of one kind that share a table of blocks."""

    cache: LayerCache
    layers: int
    block_size: int

    def blocks_of(self, request: BlockRequest) -> int:
        """Blocks that a request may take: a window is kept until the step is done, and may begin
        inside a block."""
        cache, size, tokens = self.cache, self.block_size, request.tokens
        if cache.kind == "state":
            blocks = request.state_blocks
            return ceil(tokens / size) + request.speculated if blocks is None else blocks
        if cache.kind == "cross":
            return ceil(request.encoder_tokens / size)
        if cache.window is None:
            return ceil(ceil(tokens / request.context_ranks) / size)
        if cache.kind == "chunked":
            return ceil(min(cache.window + request.in_flight, tokens) / size)
        return ceil(min(cache.window - 1 + request.in_flight, tokens) / size) + 1

    def formula(self, request: BlockRequest) -> str:
        """The blocks of a window, with their numbers; "" of what keeps none."""
        window, plus = self.cache.window, ""
        if window is None or self.cache.kind in ("state", "cross"):
            return ""
        first = f"{window:,}" if self.cache.kind == "chunked" else f"{window:,} - 1"
        if self.cache.kind != "chunked":
            plus = ", and 1 that the window begins inside"
        return (
            f"of a window of {window:,} the least of {first} + {request.in_flight:,} in flight and"
            f" {request.tokens:,} tokens / {self.block_size:,}, rounded up{plus}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockTable:
    """The groups of a model. `block_bytes` is what one more block costs on each pipeline stage,
    over all layers of it that are stored side by side."""

    groups: tuple[LayerGroup, ...]
    block_bytes: tuple[int, ...]

    @property
    def block_size(self) -> int | None:
        """Tokens of the smallest block; None where no layer keeps tokens."""
        sizes = [group.block_size for group in self.groups if group.cache.kind != "state"]
        return min(sizes, default=None)

    def num_blocks(self, available: Sequence[int]) -> int:
        """Blocks that `available` bytes of each stage hold: the stage with the fewest decides."""
        counts = [
            free // each for free, each in zip(available, self.block_bytes, strict=True) if each
        ]
        return max(0, min(counts, default=0))

    def blocks_of(self, request: BlockRequest) -> int:
        """Blocks that a request takes in all groups together."""
        return sum(group.blocks_of(request) for group in self.groups)

    def concurrency(self, num_blocks: int, request: BlockRequest) -> float:
        """How many such requests fit at once: `Maximum concurrency` in the log."""
        return num_blocks / max(1, self.blocks_of(request))

    def logged_tokens(self, num_blocks: int, request: BlockRequest, version: Version) -> int:
        """`GPU KV cache size` in the log: tokens of the blocks of one group until 0.20.0, the
        tokens of as many requests as fit since 0.20.1 (vllm-project/vllm#40691)."""
        size = self.block_size
        if version.at_least(0, 20, 1) or size is None:
            return int(self.concurrency(num_blocks, request) * request.tokens)
        return num_blocks // len(self.groups) * size * request.context_ranks


def block_table(
    layers: Sequence[LayerCache],
    *,
    version: Version,
    block_size: int | None = None,
    kernel_block: int = _KERNEL_BLOCK,
    stages: Sequence[int] | None = None,
    stage_count: int = 1,
    chunk: int = 1,
) -> BlockTable:
    """The groups that vLLM makes of the layers' caches; `block_size` is the user's, in tokens, and
    `kernel_block` what is taken without one.

    `stages` says which pipeline stage each of `layers` is on, from 0; None: all on one. A stage may
    have none, where its layers read others' caches. Beside recurrent state blocks are multiples of
    `chunk` tokens.
    """
    of = [0] * len(layers) if stages is None else list(stages)
    kept = [(n, at) for n, at in zip(layers, of, strict=True) if n.token_bytes or n.state_bytes]
    places = range(max(stage_count, max(of, default=0) + 1))
    size = block_size or kernel_block
    if any(layer.state_bytes for layer, _ in kept):
        size = _beside_states([layer for layer, _ in kept], size, block_size, chunk, version)
    if len({_need(layer) for layer, _ in kept}) <= 1:
        return _one_group(kept, size, places)
    page = max((layer.block_size or size) * layer.token_bytes for layer, _ in kept)
    members = _members(kept, version)
    groups = tuple(
        LayerGroup(
            cache=layer,
            layers=len(at),
            block_size=_stretched(layer, layer.block_size or size, page),
        )
        for layer, at in members
    )
    width = [max(at.count(place) for _, at in members) for place in places]
    return BlockTable(groups=groups, block_bytes=tuple(page * layers for layers in width))


def _need(layer: LayerCache) -> tuple[str, int | None]:
    """Layers that always need equally many tokens kept can share one table of blocks."""
    kind = "full" if layer.kind == "latent" else layer.kind
    return kind, layer.window


def _one_group(kept: Sequence[tuple[LayerCache, int]], size: int, places: range) -> BlockTable:
    """Layers that keep the same tokens: one table of blocks, whose pages may differ in size."""
    if not kept:
        return BlockTable(groups=(), block_bytes=tuple(0 for _ in places))
    totals = [0 for _ in places]
    for layer, place in kept:
        totals[place] += layer.token_bytes * size + layer.state_bytes
    group = LayerGroup(cache=kept[0][0], layers=len(kept), block_size=size)
    return BlockTable(groups=(group,), block_bytes=tuple(totals))


def _members(
    kept: Sequence[tuple[LayerCache, int]], version: Version
) -> list[tuple[LayerCache, list[int]]]:
    """Each group's cache and the stages of its layers; a kind's layers are dealt out in turn."""
    kinds: dict[LayerCache, list[int]] = {}
    for layer, place in kept:
        kinds.setdefault(layer, []).append(place)
    width = _group_width([len(at) for at in kinds.values()], version)
    found = []
    for layer, at in kinds.items():
        count = ceil(len(at) / width)
        found += [(layer, at[i::count]) for i in range(count)]
    return found


def _beside_states(
    layers: Sequence[LayerCache], size: int, wanted: int | None, chunk: int, version: Version
) -> int:
    """The tokens of a block beside recurrent state: so many that a page holds the state. A size
    that the user asks for is a multiple of them since 0.20, before the least."""
    is_latent = any(layer.kind == "latent" for layer in layers)
    default = _LATENT_BLOCK if is_latent else _KERNEL_BLOCK
    states = max((layer.state_bytes for layer in layers), default=0)
    attention = max((layer.token_bytes for layer in layers), default=0)
    if not attention:
        return size
    if is_latent and version.at_least(*_LATENT_128_SINCE):
        default = 128
    is_step = version.at_least(0, 20)
    step = lcm(max(default, wanted or 0) if is_step else default, chunk)
    needed = step * ceil(states / (step * attention))
    return needed if is_step else max(needed, wanted or 0)


def _stretched(layer: LayerCache, size: int, page: int) -> int:
    """Tokens of this layer's block once its page is as large as the largest: a layer that keeps
    fewer bytes per token keeps more tokens in it."""
    if layer.kind == "state" or not layer.token_bytes:
        return size
    return size * max(1, page // (size * layer.token_bytes))


def _group_width(counts: Sequence[int], version: Version) -> int:
    """Layers per group: as many as the rarest kind has, or as the commonest where that is little
    more and the rest is padding: a quarter more since 0.12 (vllm-project/vllm#29303), half since
    0.18."""
    least, most = min(counts), max(counts)
    if version.at_least(0, 18):
        return most if most < 1.5 * least else least
    return most if version.at_least(0, 12) and most < 1.25 * least else least
