"""llama.cpp's types of a cache, and the bytes of a row of it."""

from typing import NamedTuple

from headcount.model.errors import HeadcountError

ELEMENTS = 32  # of a block
# bytes of a block of as many (ggml/src/ggml-common.h), scale included
BLOCKS = {
    **{"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20},
    **{"q4_0": 18, "iq4_nl": 18},
}
WIDE = frozenset({"f32", "f16", "bf16"})
_NAMES = {"fp16": "f16", "float16": "f16", "float32": "f32", "fp32": "f32", "bfloat16": "bf16"}


class CacheTypes(NamedTuple):
    """Of keys (--cache-type-k) and of values (--cache-type-v)."""

    keys: str = "f16"
    values: str = "f16"

    @property
    def name(self) -> str:
        """Both where they differ."""
        return self.keys if self.keys == self.values else f"{self.keys}/{self.values}"


def cache_type(name: str | None) -> str:
    """llama.cpp's name of a type of cache; None is its default, f16. Raises HeadcountError."""
    wanted = "f16" if name is None or name == "auto" else name.lower()
    found = _NAMES.get(wanted, wanted)
    if found not in BLOCKS:
        raise HeadcountError(
            f"llama.cpp has no cache of {name!r}; it has {', '.join(BLOCKS)} (--cache-type-k)"
        )
    return found


def row_bytes(elements: int, kind: str) -> int:
    """Of a cell of so many elements (ggml_row_size): whole blocks, but of what has no scales."""
    if kind in WIDE:
        return elements * BLOCKS[kind] // ELEMENTS
    return -(-elements // ELEMENTS) * BLOCKS[kind]
