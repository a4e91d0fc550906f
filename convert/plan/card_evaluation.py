"""The part of a model card that holds an evaluation: between two marks, so that a later one finds
it."""

from collections.abc import Iterable, Iterator

_BEGIN, _END = "<!-- evaluation -->", "<!-- end of evaluation -->"
TITLE = "## Evaluation"
HEAD = "| | this model |"
_NONE = "Not evaluated"


def with_evaluation(card: str, lines: Iterable[str]) -> str:
    """The card, at its end `lines` below TITLE, in the place of an earlier evaluation."""
    before, _, after = card.partition(_BEGIN)
    kept = before.rstrip() + after.partition(_END)[2].rstrip()
    return "\n".join((kept, "", _BEGIN, TITLE, "", *lines, _END, ""))


def not_evaluated(since: str, *, pairs: bool) -> Iterator[str]:
    """What stands in the place of an evaluation: that there was none (`since` ends the sentence),
    and the command that makes one. `pairs`: of an encoder-decoder."""
    option = "--pairs PAIRS" if pairs else "--text TEXT"
    yield (
        f"{_NONE}{since}. This measures what was lost of the original, in the folder ORIGINAL, and"
        " writes it here:"
    )
    yield ""
    yield "```sh"
    yield f"headcount evaluate FOLDER --against ORIGINAL {option} --card"
    yield "```"


def not_evaluated_file(*, is_changed: bool) -> Iterator[str]:
    """The same of a GGUF file. `is_changed`: it has other heads than its source."""
    more = " The same conversion without `--format gguf` can be measured." if is_changed else ""
    yield f"{_NONE}: `headcount evaluate` runs folders as transformers reads them.{more}"


def of_the_model_before(card: str, change: str) -> str:
    """The card of what `change` makes of the model: an evaluation is said to be of what was there
    before it, and no later one takes its place. That there was none is not said any more."""
    before, begin, rest = card.partition(_BEGIN)
    evaluation, end, after = rest.partition(_END)
    if not begin or not end:
        return card
    if f"\n{_NONE}" in evaluation:
        return f"{before.rstrip()}\n{after}"
    told = evaluation.replace(TITLE, f"{TITLE} before {change}", 1)
    told = told.replace(HEAD, f"| | before {change} |", 1)
    return before + told.strip() + after
