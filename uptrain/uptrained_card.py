"""What an uptraining did, written into the model card that the result takes over from CONVERTED."""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.convert.plan.card_evaluation import (
    not_evaluated,
    of_the_model_before,
    with_evaluation,
)
from headcount.model.version import __version__
from headcount.report.markdown import plain

from .scores import Scores, perplexity, read_scores

_CHANGE = "uptraining"
_TARGETS = {"as given": "", "said by the teacher": ", whose targets the teacher said"}


def uptrained_card(card: str, conversion: Mapping[str, Any], uptraining: Mapping[str, Any]) -> str:
    """`card` with how the model was trained since, and that it was not evaluated since; an earlier
    evaluation in it is said to be of the model before. `conversion` is the record of CONVERTED,
    empty where it has none, and `uptraining` that of the training, which alone is told: no names
    of files, so that one training gives one card."""
    kept = of_the_model_before(card, _CHANGE).rstrip()
    told = "\n".join((kept, "", *_section(conversion, uptraining), ""))
    has_encoder = "targets" in uptraining
    return with_evaluation(told, not_evaluated(f" since the {_CHANGE}", pairs=has_encoder))


def _section(conversion: Mapping[str, Any], uptraining: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {_CHANGE.capitalize()}"
    yield ""
    yield f"{_trained(uptraining)}, with headcount {__version__}."
    yield ""
    yield f"- Teacher: {_teacher(conversion, uptraining)}."
    yield f"- {_read_from(uptraining)}."
    yield ""
    held = uptraining["held_out"]
    unit = "pairs" if "targets" in uptraining else "rows"
    yield f"On {held['tokens']:,} tokens in {held['rows']:,} {unit} that were not trained on:"
    yield ""
    yield "| | before | after | the teacher |"
    yield "|---|---|---|---|"
    before, after = (read_scores(uptraining[when]) for when in ("before", "after"))
    yield from (f"| {' | '.join(row)} |" for row in _rows(before, after))


def _trained(uptraining: Mapping[str, Any]) -> str:
    settings, steps = uptraining["settings"], uptraining["steps"]
    unit = "pairs of at most" if "targets" in uptraining else "rows of"
    return (
        f"Trained to predict what its teacher predicts: {steps:,} step{'s'[: steps != 1]} of"
        f" {settings['batch_size']:,} {unit} {settings['sequence_length']:,} tokens,"
        f" {uptraining['tokens']:,} tokens in all, at a learning rate of"
        f" {settings['learning_rate']:g}"
    )


def _teacher(conversion: Mapping[str, Any], uptraining: Mapping[str, Any]) -> str:
    """By its name where it is what the conversion read, as both records have it."""
    found, source = uptraining["teacher"]["fingerprint"], conversion.get("source")
    if isinstance(source, Mapping) and source.get("fingerprint") == found:
        return f"{plain(str(source.get('name')))}, which this model was made from"
    return f"a model whose config and headers have the fingerprint {found}"


def _read_from(uptraining: Mapping[str, Any]) -> str:
    key = "pairs" if "pairs" in uptraining else "texts"
    digests = ", ".join(file["sha256"][:16] for file in uptraining[key])
    title = key.capitalize() if len(uptraining[key]) > 1 or key == "pairs" else "Text"
    return f"{title}: SHA-256 {digests}{_TARGETS[uptraining.get('targets', 'as given')]}"


def _rows(before: Scores, after: Scores) -> Iterator[tuple[str, str, str, str]]:
    losses = (before.loss, after.loss, after.teacher_loss)
    first, second, third = (f"{loss:.4f}" for loss in losses)
    yield "Loss, nats a token", first, second, third
    first, second, third = (_number(perplexity(loss)) for loss in losses)
    yield "Perplexity", first, second, third
    both = (before, after)
    first, second = (f"{scores.kl_divergence:.4f}" for scores in both)
    yield "KL divergence, nats a token", first, second, ""
    first, second = (f"{scores.top1_agreement:.1%}" for scores in both)
    yield "Top-1 agreement", first, second, ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
