"""What the commands ask of an evaluation: to be checked, and to be run and reported."""

import sys
from pathlib import Path
from typing import Any

from headcount.report.report import Report
from headcount.running.boundary import quiet_transformers

from .as_report import evaluation_report
from .evaluation import evaluate
from .plan import EvaluationRequest, settle


def run_evaluation(model: str, against: str | None, **request: Any) -> Report:
    """Evaluates, and prints warnings on stderr. Raises HeadcountError."""
    evaluation = evaluate(EvaluationRequest(model=model, against=against, **request))
    for warning in evaluation.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    return evaluation_report(evaluation)


def check_evaluation(source: Path, **request: Any) -> None:
    """Raises HeadcountError for an evaluation that would fail, before a conversion is made for it:
    text, tokenizer, window and device are those of the source."""
    with quiet_transformers():
        settle(EvaluationRequest(model=str(source), **request))
