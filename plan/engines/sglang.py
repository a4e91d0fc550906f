"""SGLang's K/V memory: a pool of cells, each one token of all layers.

From sglang/srt/model_executor/pool_configurator.py, arg_groups/memory_hook.py and
mem_cache/kv_cache_configurator.py of 0.5.23.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from .layers import LayerCache

_GIB, _MIB = 2**30, 2**20
SWA_RATIO, STATE_RATIO = 0.8, 0.9  # swa_full_tokens_ratio, mamba_full_memory_ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangPool:
    """`full_bytes` of one token in layers that keep all, `swa_bytes` in those with a window,
    `state_bytes` of one request's recurrent state."""

    full_bytes: int
    swa_bytes: int
    state_bytes: int
    window: int | None
    page_size: int = 1

    @property
    def block_size(self) -> int | None:
        return self.page_size

    @property
    def bytes_per_token(self) -> int:
        return self.full_bytes

    @property
    def cell_bytes(self) -> int:
        """Bytes of a token of the pool: layers with a window keep a share of the tokens only."""
        if not self.full_bytes:
            return self.swa_bytes
        return self.full_bytes + ceil(SWA_RATIO * self.swa_bytes)

    def num_blocks(self, available: Sequence[int]) -> int | None:
        return self._tokens(available) // self.page_size

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return self._tokens(available)

    def concurrency(self, available: Sequence[int], context: int) -> float:
        tokens = self._tokens(available)
        limits = [tokens / context] if self.full_bytes or self.swa_bytes else []
        if self.window is not None and self.full_bytes:
            limits.append(SWA_RATIO * tokens / min(self.window, context))
        if self.state_bytes:
            limits.append(self._state_budget(available) // self.state_bytes)
        return min(limits, default=0.0)

    def _tokens(self, available: Sequence[int]) -> int:
        left = min(available) - self._state_budget(available)
        if left <= 0 or not self.cell_bytes:
            return 0
        return left // self.cell_bytes // self.page_size * self.page_size

    def _state_budget(self, available: Sequence[int]) -> int:
        if not self.state_bytes:
            return 0
        free = max(0, min(available))
        if not self.cell_bytes:
            return free
        return int(free * STATE_RATIO / (1 + STATE_RATIO))

    def notes(self) -> Sequence[str]:
        found = ["A cell of the pool is one token of all layers."]
        if self.window is not None and self.full_bytes:
            found.append(
                f"Layers with a window keep {SWA_RATIO:g} of the tokens (--swa-full-tokens-ratio)."
            )
        if self.state_bytes:
            found.append(
                f"Recurrent state gets {STATE_RATIO:g} of what keys and values get"
                " (--mamba-full-memory-ratio)."
            )
        return found


def sglang_pool(layers: Sequence[LayerCache], *, page_size: int = 1) -> SglangPool:
    """The pool of one rank."""
    windows = {n.window for n in layers if n.kind in ("sliding", "chunked")} - {None}
    return SglangPool(
        full_bytes=sum(n.token_bytes for n in layers if n.kind in ("full", "latent")),
        swa_bytes=sum(n.token_bytes for n in layers if n.kind in ("sliding", "chunked")),
        state_bytes=sum(layer.state_bytes for layer in layers),
        window=max((window for window in windows if window), default=None),
        page_size=page_size,
    )


def mem_fraction_static(total_bytes: int, *, ranks: int, is_latent: bool) -> float:
    """The default of --mem-fraction-static: what is left when steps and CUDA graphs have theirs.

    `total_bytes` is the device's visible memory. The chunk of a prefill and the largest batch of a
    graph go by the device's size as well.
    """
    memory = total_bytes / _MIB
    chunk, batch = _sizes(total_bytes / _GIB, ranks)
    graphs = 1536 if is_latent else 2 * batch + 8 * _prefill_sizes(chunk)
    reserved = 512 + 1.5 * max(chunk, 2048) + ranks / 8 * 1024 + graphs
    if total_bytes > 60 * _GIB:
        reserved = max(reserved, 10 * 1024)
    return round(max(0.1, (memory - reserved) / memory), 3)


def _prefill_sizes(chunk: int) -> int:
    return max(1, chunk // 512)


def _sizes(gib: float, ranks: int) -> tuple[int, int]:
    """Tokens of a prefill chunk, and the largest batch of a CUDA graph."""
    few = ranks < 4
    for limit, chunk, small, large in (
        (20, 2048, 8, 8),
        (35, 2048, 24, 80),
        (60, 4096, 32, 160),
        (160, 8192, 256, 512),
    ):
        if gib < limit:
            return chunk, small if few else large
    return 16384, 512
