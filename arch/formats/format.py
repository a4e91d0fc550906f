"""One way to store a matrix in fewer bits, with all that travels with its codes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """`bits` of a code, in words of `packed` bits along a row; `whole`: no code lies across words.

    A scale of `scale_bits` and a zero point of `zero_bits` stand for `group` weights of a row
    (None: a whole row; 0: the whole matrix), or for a block of `block` rows x columns. `flat`: the
    weights are cut into groups as they follow each other, across rows. `column_bytes` for each
    input, such as GPTQ's g_idx, and `matrix_bytes` for each matrix: scales of scales, a shape.
    `nested`: so many scales share a further one of 32 bits. `padded`: a row ends with a whole
    group.
    """

    name: str
    bits: int
    packed: int = 8
    group: int | None = None
    scale_bits: int = 0
    zero_bits: int = 0
    block: tuple[int, int] | None = None
    whole: bool = False
    flat: bool = False
    nested: int | None = None
    padded: bool = False
    column_bytes: int = 0
    matrix_bytes: int = 0

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes of one matrix of [rows, columns]."""
        wide = _up(columns, self.group) * self.group if self.padded and self.group else columns
        codes = self._codes(rows * columns) if self.flat else rows * self._codes(wide)
        scales = self._scales(rows, columns)
        further = 0 if self.nested is None else 4 * _up(scales, self.nested)
        shared = _up(scales * self.scale_bits, 8) + _up(scales * self.zero_bits, 8)
        return codes + shared + further + columns * self.column_bytes + self.matrix_bytes

    def _codes(self, count: int) -> int:
        """Bytes of so many codes in a row."""
        if self.whole:
            return _up(count, self.packed // self.bits) * self.packed // 8
        return _up(count * self.bits, self.packed) * self.packed // 8

    def _scales(self, rows: int, columns: int) -> int:
        if self.block is not None:
            high, wide = self.block
            return _up(rows, high) * _up(columns, wide)
        if self.group == 0:
            return 1
        if self.group is None:
            return rows
        if self.flat:
            return _up(rows * columns, self.group)
        return rows * _up(columns, self.group)


def _up(number: int, step: int) -> int:
    return -(-number // step)
