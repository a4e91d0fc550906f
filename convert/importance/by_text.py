"""What heads are worth to the loss on a conversion's calibration text."""

import torch

from headcount.running.boundary import out_of_memory_explained, quiet_transformers

from ..calibrate.calibration_text import calibration_text
from ..calibrate.layered_model import LayeredModel
from ..plan.refusals.merging import check_mergeable
from ..plan.request import CALIBRATION_TOKENS, ConversionRequest
from ..plan.source import ConversionSource
from ..stream.reader import SourceReader
from .estimate import estimated
from .head_importance import HeadImportance, rounded
from .text_run import TextRun


@torch.no_grad()
def importance_by_text(source: ConversionSource, request: ConversionRequest) -> HeadImportance:
    """The first-order estimate of what masking each head costs, on the text that `request` is
    calibrated with. One layer's weights are in memory at a time. Raises HeadcountError."""
    assert request.calibration is not None
    check_mergeable(source)
    tokens = request.calibration_tokens or CALIBRATION_TOKENS
    with (
        SourceReader(source.checkpoint.files) as reader,
        quiet_transformers(),
        out_of_memory_explained(),
    ):
        layered = LayeredModel(source, reader)
        name, seed = request.calibration, request.seed
        text = calibration_text(source, layered.runnable, name, tokens, seed)
        run = TextRun(layered, text)
        try:
            run.forward()
            scores = estimated(run, ablated_to_mean=False)
        finally:
            run.close()
    return HeadImportance(
        criterion="text", scores=rounded(scores), sha256=text.sha256, tokens=text.tokens
    )
