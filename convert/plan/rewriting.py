"""What is done to layers of the source before their heads are pooled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..attention_map.attention_tensors import Where
from ..latent.mla_shape import MlaShape
from ..merge.ladder import Ladder
from .heads import HeadsByLayer
from .request import CPU
from .source import ConversionSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewriting:
    """Layers of `source` get tensors of other values, whose heads can be pooled to `heads` without
    a further loss. `nbytes` are those that these tensors take on disk for the time of the run, at
    most. `calibration` is a text file or `builtin`, with the digest of its content, of which
    `tokens_read` are used, at most `calibration_tokens`, in rows of `row_tokens`, at most
    `calibration_row_tokens`; None where weights alone decide. `ranks`:
    keys and values are rebuilt from latents of these ranks, and no head is pooled; `mla`: by a
    class with latent attention of that shape, None: by ours. Layers run on
    `device`. `chosen`: groups of K/V heads that an
    earlier run has chosen."""

    source: ConversionSource
    heads: HeadsByLayer
    ladder: Ladder
    nbytes: int
    calibration: str | None = None
    calibration_sha256: str | None = None
    calibration_tokens: int = 0
    calibration_row_tokens: int | None = None
    tokens_read: int = 0
    row_tokens: int = 0
    ranks: Mapping[Where, int] = field(default_factory=dict)
    mla: MlaShape | None = None
    device: str = CPU
    chosen: Mapping[Where, Sequence[Sequence[int]]] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers whose K/V heads become fewer, or that keep a latent."""
        if self.ranks:
            return tuple(sorted({index for index, _ in self.ranks}))
        return tuple(sorted({i for (i, _), own in self.heads.layers.items() if own.is_changed}))
