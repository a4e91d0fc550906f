"""vLLM's K/V blocks: page sizes, layer groups, how many blocks there are and what a request takes.

A block is a page of one layer group: `block_size` tokens of each of the group's layers. The rules
are those of vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py, by version.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from .layers import LayerCache
from .version import Version

# Attention kernels take K/V in multiples of so many tokens; MLA's in larger ones.
_KERNEL_BLOCK, _LATENT_KERNEL_BLOCK = 16, 128


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """Layers of one kind that share a table of blocks. `page_bytes` is one layer's page."""

    cache: LayerCache
    layers: int
    block_size: int
    page_bytes: int

    def blocks_of_request(self, tokens: int, in_flight: int, encoder_tokens: int = 0) -> int:
        """Blocks that a request of `tokens` tokens may take, `in_flight` of them scheduled at once.

        A window is kept until the step is done, and may begin inside a block.
        """
        cache, size = self.cache, self.block_size
        if cache.kind == "state":
            return 1
        if cache.kind == "cross":
            return ceil(encoder_tokens / size)
        if cache.window is None:
            return ceil(tokens / size)
        if cache.kind == "chunked":
            return ceil(min(cache.window + in_flight, tokens) / size)
        return ceil(min(cache.window - 1 + in_flight, tokens) / size) + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockTable:
    """The groups of a model. `block_bytes` is what one more block costs over all layers that are
    stored side by side."""

    groups: tuple[LayerGroup, ...]
    block_bytes: int

    def num_blocks(self, available: int) -> int:
        """Blocks that `available` bytes hold."""
        return max(0, available // self.block_bytes) if self.block_bytes else 0

    def blocks_of_request(self, tokens: int, in_flight: int, encoder_tokens: int = 0) -> int:
        """Blocks that a request takes in all groups together."""
        needs = (g.blocks_of_request(tokens, in_flight, encoder_tokens) for g in self.groups)
        return sum(needs)

    def concurrency(
        self, num_blocks: int, tokens: int, in_flight: int, encoder_tokens: int = 0
    ) -> float:
        """How many requests of `tokens` tokens fit at once: `Maximum concurrency` in the log."""
        return num_blocks / max(1, self.blocks_of_request(tokens, in_flight, encoder_tokens))

    def logged_tokens(self, num_blocks: int, tokens: int, in_flight: int, version: Version) -> int:
        """`GPU KV cache size` in the log: tokens of the blocks of one group until 0.20.0, the
        tokens of as many requests as fit since 0.20.2."""
        if version.at_least(0, 20, 1):
            return int(self.concurrency(num_blocks, tokens, in_flight) * tokens)
        smallest = min(group.block_size for group in self.groups if group.cache.kind != "state")
        return num_blocks // len(self.groups) * smallest


def block_table(
    layers: Sequence[LayerCache], *, version: Version, block_size: int | None = None
) -> BlockTable:
    """The groups that vLLM makes of the layers' caches; `block_size` is the user's, in tokens."""
    kept = [layer for layer in layers if layer.token_bytes or layer.state_bytes]
    size = _block_size(kept, block_size)
    if all(layer.kind in ("full", "latent") for layer in kept):
        return _one_group(kept, size)
    page = max(size * layer.token_bytes for layer in kept)
    sizes = {layer: _stretched(layer, size, page) for layer in kept}
    counts = Counter(kept)
    width = _group_width(list(counts.values()), version)
    groups = tuple(
        LayerGroup(
            cache=layer,
            layers=min(width, count),
            block_size=sizes[layer],
            page_bytes=page,
        )
        for layer, count in counts.items()
        for _ in range(ceil(count / width))
    )
    return BlockTable(groups=groups, block_bytes=page * width)


def _one_group(layers: Sequence[LayerCache], size: int) -> BlockTable:
    """Layers that keep every token: one table of blocks, whose pages may differ in size."""
    total = sum(layer.token_bytes for layer in layers) * size
    if not layers:
        return BlockTable(groups=(), block_bytes=0)
    group = LayerGroup(
        cache=replace(layers[0], window=None),
        layers=len(layers),
        block_size=size,
        page_bytes=total // len(layers),
    )
    return BlockTable(groups=(group,), block_bytes=total)


def _block_size(layers: Sequence[LayerCache], wanted: int | None) -> int:
    """The tokens of a block: beside recurrent state so many that a page holds the state."""
    kernel = _LATENT_KERNEL_BLOCK if any(n.kind == "latent" for n in layers) else _KERNEL_BLOCK
    states = max((layer.state_bytes for layer in layers), default=0)
    attention = max((layer.token_bytes for layer in layers), default=0)
    if not states or not attention:
        return wanted or (64 if kernel == _LATENT_KERNEL_BLOCK else _KERNEL_BLOCK)
    step = max(kernel, wanted or 0)
    return step * ceil(states / (step * attention))


def _stretched(layer: LayerCache, size: int, page: int) -> int:
    """Tokens of this layer's block once its page is as large as the largest: a layer that keeps
    fewer bytes per token keeps more tokens in it."""
    if layer.kind == "state" or not layer.token_bytes:
        return size
    return size * max(1, page // (size * layer.token_bytes))


def _group_width(counts: Sequence[int], version: Version) -> int:
    """Layers per group: as many as the rarest kind has, and since 0.19 as many as the commonest
    where that is less than half more (the rest is padding)."""
    least, most = min(counts), max(counts)
    return most if version.at_least(0, 12) and most < 1.5 * least else least
