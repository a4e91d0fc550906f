"""What heads are worth to the loss on a text, as a conversion is calibrated with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from headcount.running.boundary import out_of_memory_explained, quiet_transformers

from ..calibrate.calibration_text import calibration_text
from ..calibrate.free_memory import LESS_MEMORY
from ..calibrate.layered_model import LayeredModel
from ..calibrate.placed import CPU
from ..plan.refusals.merging import check_mergeable
from ..plan.request import HeadsOfLayers
from ..plan.source import ConversionSource
from ..stream.reader import SourceReader
from .ablation import ablated
from .estimate import estimated
from .head_importance import HeadImportance, Scores, rounded
from .rounds import Choose, chosen_in_rounds
from .text_run import TextRun


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredText:
    """At most `tokens` tokens of the file `name`, or of the prose in the package for `builtin`, in
    rows of at most `row_tokens` that `seed` shuffles. `option` is where the user has named it; the
    model runs on `device`. `less_memory` is what to try where that has too little."""

    name: str
    tokens: int
    seed: int = 0
    option: str = "--calibration"
    row_tokens: int | None = None
    device: torch.device = CPU
    less_memory: str = LESS_MEMORY


def importance_by_text(
    source: ConversionSource, text: ScoredText, *, ablated_to_mean: bool = False
) -> HeadImportance:
    """The estimate of what it costs to mask each head, or to put its mean over the text
    in its place. One layer's weights are in memory at a time. Raises HeadcountError."""
    with _run(source, text) as run:
        return _importance(run, estimated(run, ablated_to_mean=ablated_to_mean))


def pruned_by_text(
    source: ConversionSource, text: ScoredText, choose: Choose
) -> tuple[HeadsOfLayers, HeadImportance]:
    """The heads that go, by what it costs to mask them, and what they were chosen by. One layer's
    weights are in memory at a time. Raises HeadcountError."""
    with _run(source, text) as run:
        found = chosen_in_rounds(run, choose)
        importance = _importance(run, found.scores)
        return found.pruned, replace(importance, rounds=found.rounds, added=found.added)


def exact_importance(
    source: ConversionSource,
    text: ScoredText,
    *,
    ablated_to_mean: bool = False,
    tell: Callable[[], object] = lambda: None,
) -> tuple[HeadImportance, HeadImportance]:
    """What that costs, and the estimate on the same text. The whole model is in memory; a pass a
    head, after which `tell` is called. Raises HeadcountError."""
    with _run(source, text) as run:
        exact = ablated(run, ablated_to_mean=ablated_to_mean, tell=tell)
        estimate = estimated(run, ablated_to_mean=ablated_to_mean)
        return _importance(run, exact), _importance(run, estimate)


@contextmanager
def _run(source: ConversionSource, text: ScoredText) -> Iterator[TextRun]:
    check_mergeable(source)
    with (
        SourceReader(source.checkpoint.files) as reader,
        quiet_transformers(),
        out_of_memory_explained(text.less_memory),
        torch.no_grad(),
    ):
        layered = LayeredModel(source, reader, device=text.device)
        read = calibration_text(
            source,
            layered.runnable,
            text.name,
            text.tokens,
            text.seed,
            option=text.option,
            row_tokens=text.row_tokens,
        )
        run = TextRun(layered, read)
        try:
            run.forward()
            yield run
        finally:
            run.close()


def _importance(run: TextRun, scores: Scores) -> HeadImportance:
    read = run.text
    return HeadImportance(
        criterion="text", scores=rounded(scores), sha256=read.sha256, tokens=read.tokens
    )
