"""The figures of the probes that stand in a model's row of CSV."""

from headcount.report.report import Column

from .behaviour import Behaviour, Copying

COLUMNS = (
    Column("induction_loss", "Induction loss", "loss"),
    Column("induction_accuracy", "Induction, first", "share"),
    Column("repeated_text_loss", "Repeated text", "loss"),
    Column("repeated_text_accuracy", "Repeated text, first", "share"),
    Column("in_context_score", "In-context score", "loss"),
    Column("recall_accuracy", "Recall, first", "share"),
)


def record(behaviour: Behaviour, *, original: bool) -> tuple[float | None, ...]:
    """Of the model, or of the `original`; recall is the mean over the distances."""
    recalled = [one.against if original else one.model for one in behaviour.recall]
    right = [one.accuracy for one in recalled if one is not None]
    score = behaviour.in_context
    return (
        *_second_copy(behaviour.induction, original),
        *_second_copy(behaviour.repeated_text, original),
        None if score is None else score.against if original else score.model,
        sum(right) / len(right) if right else None,
    )


def _second_copy(copying: Copying | None, original: bool) -> tuple[float | None, float | None]:
    own = None if copying is None else copying.against if original else copying.model
    return (None, None) if own is None else (own.second_loss, own.second_accuracy)
