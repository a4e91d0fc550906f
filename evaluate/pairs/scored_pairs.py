"""Loss of every token of the targets, where the decoder reads the target before it, and how far a
second model's predictions are from the first's."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from headcount.running.pairs.encoded_pairs import EncodedPair, decoder_inputs

from ..divergence import Divergence, compare
from ..loss import TextScores, log_probabilities, token_losses


@torch.inference_mode()
def score_pairs(model: Any, pairs: Iterable[EncodedPair], original: Any | None) -> TextScores:
    """All pairs in their order. Raises EvaluationFailedError at the first loss that is not
    finite."""
    losses, originals, divergences = list[Tensor](), list[Tensor](), list[Divergence]()
    for pair in pairs:
        targets, first = pair.target[0], sum(map(len, losses))
        found = log_probabilities(teacher_forced(model, pair).logits[0])
        losses.append(token_losses(found, targets, first=first, role="model"))
        if original is not None:
            before = log_probabilities(teacher_forced(original, pair).logits[0])
            originals.append(token_losses(before, targets, first=first, role="original"))
            divergences.append(compare(before, found))
    return TextScores(
        losses=torch.cat(losses),
        original_losses=torch.cat(originals) if originals else None,
        divergence=Divergence.join(divergences) if divergences else None,
    )


def teacher_forced(model: Any, pair: EncodedPair) -> Any:
    """The outputs of one pass, with what it caches."""
    start = model.generation_config.decoder_start_token_id
    return model(
        **{model.main_input_name: pair.source},
        decoder_input_ids=decoder_inputs(pair.target, start),
        use_cache=True,
    )
