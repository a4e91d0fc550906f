"""What is wrong with the text that models are measured on: said by an evaluation and by a sweep."""

import math
from collections import Counter
from collections.abc import Sequence

from headcount.convert.plan.side_files import RECORD
from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.sources.json_file import read_json_file

from .evaluation_document import ModelScore
from .evaluation_plan import EvaluationPlan

_FEW = 128  # tokens: figures of fewer change with the next sentence
_ENOUGH = 1000  # tokens: with fewer their frequencies say little
_FAR_BETTER = 0.5  # nats a token


def text_warnings(plan: EvaluationPlan, score: ModelScore) -> tuple[str, ...]:
    """Of a text; `score` is the original's, or that of the model alone."""
    return (
        *few_tokens(plan.text.name, score.tokens),
        *_unknown_tokens(plan),
        *_poor_loss(plan, score),
    )


def fitted_to(plan: EvaluationPlan) -> tuple[str, ...]:
    """Where the record of the model names the text among those that it was made from: a
    calibration, the importance of heads, an uptraining."""
    path = plan.runnables[0].folder / RECORD
    if not path.exists():
        return ()
    try:
        _, record = read_json_file(path, limits.RECORD_BYTES)
    except HeadcountError as error:
        return (f"whether the model was fitted to the text is not known: {error}",)
    if plan.text.sha256.encode() not in record.start:
        return ()
    return (
        f"{plan.text.name}: the model was fitted to it, as its {RECORD} says: figures on it are"
        " better than on other text; give another --text",
    )


def few_tokens(name: str, tokens: int) -> tuple[str, ...]:
    """Of `tokens` that were scored."""
    if tokens >= _FEW:
        return ()
    return (
        f"{name}: only {tokens:,} {'token was' if tokens == 1 else 'tokens were'} scored, and"
        f" figures of fewer than {_FEW} tell little: take a longer text, or a larger --max-tokens",
    )


def _unknown_tokens(plan: EvaluationPlan) -> tuple[str, ...]:
    unknown = plan.tokens.unknown
    if not unknown:
        return ()
    return (
        f"{plan.text.name}: {unknown:,} of {len(plan.tokens.ids):,} tokens are unknown to the"
        " tokenizer; the loss does not cover what they stand for",
    )


def _poor_loss(plan: EvaluationPlan, score: ModelScore) -> tuple[str, ...]:
    """A model that was made for such a text is far better than one that knows how often each token
    comes and nothing else."""
    entropy = unigram_entropy(plan.tokens.ids)
    if score.tokens < _ENOUGH or score.loss < entropy - _FAR_BETTER:
        return ()
    worse = "worse" if score.loss > entropy else "hardly better"
    return (
        f"{score.id}: a loss of {score.loss:.2f} nats a token is {worse} than {entropy:.2f}, which"
        f" the frequencies of the tokens alone give: {plan.text.name} does not suit the model, or"
        " the model is damaged, and changes of the loss say little; go by the KL divergence, or"
        " give another --text (--documents, if it is many short ones)",
    )


def unigram_entropy(ids: Sequence[int]) -> float:
    """Of the frequencies of `ids`, in nats a token, with what Miller and Madow (1955) add for a
    sample: (different tokens - 1) / (2 * tokens)."""
    counts = Counter(ids)
    total = len(ids)
    entropy = -sum(count / total * math.log(count / total) for count in counts.values())
    return entropy + (len(counts) - 1) / (2 * total)
