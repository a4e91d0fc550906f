"""The part of a model card that holds an evaluation: between two marks, so that a later one finds
it."""

from collections.abc import Iterable

_BEGIN, _END = "<!-- evaluation -->", "<!-- end of evaluation -->"
TITLE = "## Evaluation"
HEAD = "| | this model |"


def with_evaluation(card: str, lines: Iterable[str]) -> str:
    """The card, at its end `lines` below TITLE, in the place of an earlier evaluation."""
    before, _, after = card.partition(_BEGIN)
    kept = before.rstrip() + after.partition(_END)[2].rstrip()
    return "\n".join((kept, "", _BEGIN, TITLE, "", *lines, _END, ""))


def of_the_model_before(card: str, change: str) -> str:
    """The card of what `change` makes of the model: an evaluation is said to be of what was there
    before it, and no later one takes its place."""
    before, begin, rest = card.partition(_BEGIN)
    evaluation, end, after = rest.partition(_END)
    if not begin or not end:
        return card
    told = evaluation.replace(TITLE, f"{TITLE} before {change}", 1)
    told = told.replace(HEAD, f"| | before {change} |", 1)
    return before + told.strip() + after
