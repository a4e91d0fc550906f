"""vLLM's blocks for attention over a window and compressed tokens (DeepSeek-V4).

A layer has up to five caches: its window's keys, its compressed entries, its indexer's, and what
waits to be compressed for either. Their pages differ in size and lie side by side in a block
(vllm/models/deepseek_v4, and vllm/v1/core/kv_cache_utils.py of 0.20 to 0.32). Every rank has all of
them. In bytes of the fp8_ds_mla layout, which the model takes unless another is asked for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from headcount.model.mixers import CompressedAttention
from headcount.model.spec import ModelSpec

from ..layers import Kind, LayerCache
from ..version import Version
from .blocks import BlockTable, LayerGroup

# A block is as large as the widest group; before 0.28 it had room for each size of pages as often
# as any group has it, before 0.24 for every size of entries as often as any comes at all. Groups of
# entries counted among those that are split alike until 0.28.
_WIDEST_SINCE, _BY_SIZE_SINCE, _EVEN_SINCE = (0, 28), (0, 24), (0, 29)
# Of an entry: 448 of 1 byte, 64 in 2, 8 of scales; pages are multiples of what the kernel reads.
_ENTRY, _PAGE = 584, 576
_WINDOW_BLOCK, _BLOCK = 64, 256  # tokens
# Tokens of a block of those that wait, by rate: as many as a page of entries has room for.
_WAITING_BLOCK = {4: 4, 128: 8}
_WAITING_BYTES = 2 * 4  # a value and its gate in float32
_SCALED, _SCALE_BYTES = 128, 4  # an indexer's key in fp8, and its scales


@dataclass(frozen=True, slots=True)
class Page:
    """A cache of one layer: `block` tokens in `bytes`, of all tokens or of a window."""

    block: int
    window: int | None
    bytes: int


Group = list[tuple[Page, int]]  # pages of layers, and the stage that each is on


def compressed_table(spec: ModelSpec, version: Version, stages: Sequence[int]) -> BlockTable | None:
    """The groups of all layers, and a block's bytes on each pipeline stage, of which `stages` has
    one a layer; None for rates that vLLM has no kernel for."""
    rates = {m.rate for n in spec.layers for m in n.mixers if isinstance(m, CompressedAttention)}
    if rates - {None, *_WAITING_BLOCK}:
        return None
    buckets: dict[tuple[int, int | None], Group] = {}
    for page, stage in _pages(spec, stages):
        buckets.setdefault((page.block, page.window), []).append((page, stage))
    repeats = _repeats(list(buckets.values()), version)
    groups = [group for bucket in buckets.values() for group in _split(bucket, repeats)]
    return BlockTable(
        groups=tuple(
            LayerGroup(cache=_cache(group[0][0]), layers=len(group), block_size=group[0][0].block)
            for group in groups
        ),
        block_bytes=tuple(
            _block_bytes([[p for p, at in group if at == stage] for group in groups], version)
            for stage in range(max(stages) + 1)
        ),
    )


def _block_bytes(groups: Sequence[Sequence[Page]], version: Version) -> int:
    """Of one stage, from the pages of each group there."""
    if version.at_least(*_WIDEST_SINCE):
        return max(sum(page.bytes for page in group) for group in groups)
    entries = sorted({page.bytes for group in groups for page in group if page.window is None})
    most: dict[int, int] = {}
    for group in groups:  # what waits is padded to the next size of entries
        sizes = Counter(min(s for s in entries if s >= page.bytes) for page in group)
        most = {size: max(sizes[size], most.get(size, 0)) for size in entries}
    if version.at_least(*_BY_SIZE_SINCE):
        return sum(size * count for size, count in most.items())
    return sum(entries) * max(most.values(), default=0)


def compressed_caches(
    spec: ModelSpec, stages: Sequence[int]
) -> tuple[tuple[LayerCache, ...], tuple[int, ...]]:
    """What a token costs in each cache, and the stages that they are on."""
    pages = list(_pages(spec, stages))
    return tuple(_cache(page) for page, _ in pages), tuple(stage for _, stage in pages)


def _cache(page: Page) -> LayerCache:
    kind: Kind = "latent" if page.window is None else "sliding"
    return LayerCache(kind=kind, token_bytes=page.bytes // page.block, window=page.window)


def _pages(spec: ModelSpec, stages: Sequence[int]) -> Iterator[tuple[Page, int]]:
    for layer, stage in zip(spec.layers, stages, strict=True):
        for mixer in layer.mixers:
            if isinstance(mixer, CompressedAttention):
                yield from ((page, stage) for page in _of_mixer(mixer))


def _of_mixer(mixer: CompressedAttention) -> Iterator[Page]:
    yield Page(_WINDOW_BLOCK, mixer.window, _padded(_WINDOW_BLOCK * _ENTRY))
    rate = mixer.rate
    if rate is None:
        return
    yield Page(_BLOCK, None, _padded(_BLOCK // rate * _ENTRY))
    yield _waiting(rate, mixer.head_dim, mixer.overlaps)
    if mixer.index_head_dim:
        width = mixer.index_head_dim + ceil(mixer.index_head_dim / _SCALED) * _SCALE_BYTES
        yield Page(_BLOCK, None, _padded(_BLOCK // rate * width))
        yield _waiting(rate, mixer.index_head_dim, mixer.overlaps)


def _waiting(rate: int, width: int, overlaps: bool) -> Page:
    """Where entries overlap, a token waits for two of them."""
    entries = 1 + overlaps
    block = _WAITING_BLOCK.get(rate, 1)
    return Page(block, entries * rate, _padded(block * entries * width * _WAITING_BYTES))


def _padded(size: int) -> int:
    return size + -size % _PAGE


def _repeats(buckets: Sequence[Group], version: Version) -> int | None:
    """Layers of a group: with the least padding over all buckets whose sizes of pages come equally
    often, but no fewer than one that mixes sizes has; None where none does. Until 0.28 over all
    buckets, but no fewer than entries have."""
    counts = [Counter(page.bytes for page, _ in bucket) for bucket in buckets]
    even = [found for found in counts if len(set(found.values())) == 1]
    mixed = [found for found in even if len(found) > 1]
    if not version.at_least(*_EVEN_SINCE):
        even = counts
        mixed = [
            c for c, bucket in zip(counts, buckets, strict=True) if bucket[0][0].window is None
        ]
    layers = [max(found.values()) for found in even]
    least = max((max(found.values()) for found in mixed), default=0)
    if not least:
        return None
    choices = range(least, max(layers) + 1)
    return min(choices, key=lambda size: (sum(-n % size for n in layers), -size))


def _split(bucket: Group, repeats: int | None) -> Iterator[Group]:
    """The bucket as groups of `repeats` layers, dealt out in turn; whole where sizes of pages do
    not come equally often."""
    by_size: dict[int, Group] = {}
    for item in bucket:
        by_size.setdefault(item[0].bytes, []).append(item)
    counts = {len(items) for items in by_size.values()}
    parts = 1 if repeats is None or len(counts) > 1 else ceil(max(counts) / repeats)
    for part in range(parts):
        yield [item for items in by_size.values() for item in items[part::parts]]
