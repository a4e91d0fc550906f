"""The calibrated rungs, layer by layer."""

from collections.abc import Iterator, Mapping

import torch

from headcount.model.errors import SourceChangedError
from headcount.running.boundary import out_of_memory_explained
from headcount.running.team import Job, Team, this_team

from ..attention_map.attention_tensors import Where
from ..latent.mla_shape import MlaShape
from ..merge.attention_weights import Groups
from ..merge.ladder import Ladder
from ..plan.heads import HeadsByLayer
from ..plan.source import ConversionSource
from ..rewrite.layer import MadeBefore, RewrittenLayer
from ..stream.reader import SourceReader
from .calibration import Asked, Calibration
from .free_memory import LESS_MEMORY
from .pairs.pair_calibration import PairCalibration
from .placed import CPU


def calibrated_layers(
    source: ConversionSource,
    heads: HeadsByLayer,
    ladder: Ladder,
    calibration: str | None,
    calibration_tokens: int,
    done: MadeBefore,
    progress: bool,
    sha256: str | None = None,
    ranks: Mapping[Where, int] | None = None,
    mla: MlaShape | None = None,
    chosen: Mapping[Where, Groups] | None = None,
    row_tokens: int | None = None,
    device: torch.device = CPU,
    ready: int = 0,
) -> Iterator[RewrittenLayer]:
    """Every layer whose K/V heads become fewer, in order, merged and fitted to text; or those that
    are to keep latents of `ranks`, by a class with latent attention of the shape `mla` or by ours.

    `calibration` is a UTF-8 file, or `builtin` for the prose in the package, of which
    `calibration_tokens` tokens are used, in rows of at most `row_tokens`; of an encoder-decoder a
    file of pairs. None: random tokens, to which nothing is fitted. A layer that `done` has is not
    computed again, but run, so that the layers after it become what they would have become; it is
    yielded as it is. The processes of a launch share the batches: this is for the main one.
    `progress`: a bar on stderr, if that is a terminal. `sha256`: the text's when it was planned
    with. `chosen`: groups of K/V heads that an earlier run has chosen.
    `device`: where layers run, and what is large is computed; what is yielded lies on the CPU.
    `ready`: in front of this layer nothing is left to compute; the bar begins there.
    Raises HeadcountError.
    """
    asked = Asked(
        source=source,
        heads=heads,
        ladder=ladder,
        calibration=calibration,
        calibration_tokens=calibration_tokens,
        sha256=sha256,
        ranks=ranks or {},
        mla=mla,
        chosen=chosen or {},
        row_tokens=row_tokens,
        device=device,
    )
    with this_team().sharing(Job(_help, (asked,))):
        yield from _layers(asked, done, progress, ready)


def _help(team: Team, asked: Asked) -> None:
    """The share of a process that is not the main one."""
    for _ in _layers(asked, lambda index: None, False, 0):
        pass


def _layers(asked: Asked, done: MadeBefore, progress: bool, ready: int) -> Iterator[RewrittenLayer]:
    with (
        out_of_memory_explained(LESS_MEMORY),
        SourceReader(asked.source.checkpoint.files) as reader,
    ):
        on_pairs = asked.calibration is not None and asked.source.reads_pairs
        kind = PairCalibration if on_pairs else Calibration
        run = kind(asked, reader)
        text = run.text(asked.calibration, asked.calibration_tokens, asked.row_tokens)
        if asked.sha256 not in (None, text.sha256):
            raise SourceChangedError(
                f"{asked.calibration}: changed while it was read; nothing was kept"
            )
        yield from run.layers(text, done, progress, ready)
