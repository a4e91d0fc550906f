"""llama.cpp's caches: cells of a context that is fixed at the start, by llama-kv-cache*.cpp.

Every sequence has a stream of `n_ctx` cells, padded to 256; layers with a window have fewer, room
for the window and one micro-batch. Recurrent state is float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Recurrent
from headcount.model.spec import ModelSpec

from ..parallel import rank_mixer

_PAD, UBATCH, _STATE_BITS = 256, 512, 32
# bytes of a block of 32 elements (ggml/src/ggml-common.h), scale included
_BLOCKS = {
    **{"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20},
    **{"q4_0": 18, "iq4_nl": 18},
}
_NAMES = {"fp16": "f16", "float16": "f16", "float32": "f32", "fp32": "f32", "bfloat16": "bf16"}


def cache_type(name: str | None) -> str:
    """llama.cpp's name of a type of cache; None is its default, f16. Raises HeadcountError."""
    wanted = "f16" if name is None or name == "auto" else name.lower()
    found = _NAMES.get(wanted, wanted)
    if found not in _BLOCKS:
        raise HeadcountError(
            f"llama.cpp has no cache of {name!r}; it has {', '.join(_BLOCKS)} (--cache-type-k)"
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaCppPool:
    """Rows are (elements per cell, window or None, number of layers); `state_elements` are those of
    one sequence."""

    rows: tuple[tuple[int, int | None, int], ...]
    state_elements: int
    type: str
    ubatch: int = UBATCH

    @property
    def block_size(self) -> int | None:
        return None

    @property
    def bytes_per_token(self) -> int:
        return sum(self._bytes(n) * count for n, window, count in self.rows if window is None)

    def _bytes(self, elements: int) -> int:
        return -(-elements // 32) * _BLOCKS[self.type]

    def cells(self, context: int, window: int | None) -> int:
        """Cells of a layer for one sequence of `context` tokens."""
        whole = _padded(context)
        if window is None:
            return whole
        return _padded(min(whole, window + self.ubatch))

    def sequence_bytes(self, context: int) -> int:
        """Bytes of one sequence's stream: keys, values and state."""
        kept = sum(
            self._bytes(elements) * self.cells(context, window) * count
            for elements, window, count in self.rows
        )
        return kept + self.state_elements * _STATE_BITS // 8

    def num_blocks(self, available: Sequence[int]) -> int | None:
        return None

    def concurrency(self, available: Sequence[int], context: int) -> float:
        each = self.sequence_bytes(context)
        return max(0, min(available)) / each if each else 0.0

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return int(self.concurrency(available, context)) * _padded(context)

    def notes(self) -> Sequence[str]:
        found = [
            f"Each sequence (--parallel) has its own cells, padded to {_PAD}: tokens are those of"
            " whole sequences."
        ]
        if any(window is not None for _, window, _ in self.rows):
            found.append(
                f"Layers with a window have cells for it and a micro-batch of {self.ubatch}"
                " (--ubatch-size); --swa-full gives them all."
            )
        if self.state_elements:
            found.append("Recurrent state is float32, one per sequence.")
        return found


def _padded(tokens: int) -> int:
    return -(-tokens // _PAD) * _PAD


def llama_cpp_pool(spec: ModelSpec, *, tp: int, kv_dtype: str | None) -> LlamaCppPool:
    """The caches of one of `tp` devices. Raises HeadcountError for an unknown type."""
    rows: dict[tuple[int, int | None], int] = {}
    state = 0
    for layer in spec.layers:
        for mixer in (rank_mixer(m, tp) for m in layer.mixers):
            elements = mixer.key_value_elements(1, 1, "serving")
            if elements and not isinstance(mixer, Recurrent):
                key = (elements, mixer.window)
                rows[key] = rows.get(key, 0) + 1
            state += sum(s.fixed_elements("serving") for s in mixer.states)
    return LlamaCppPool(
        rows=tuple((elements, window, n) for (elements, window), n in rows.items()),
        state_elements=state,
        type=cache_type(kv_dtype),
    )
