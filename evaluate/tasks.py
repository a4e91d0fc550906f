"""Tasks of lm-evaluation-harness, by the model and by the original, one beside the other."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from transformers import PreTrainedTokenizerBase

from headcount.model.errors import HeadcountError, MissingExtraError
from headcount.running.boundary import third_party
from headcount.running.load import LoadedModel

from .evaluation_request import EvaluationRequest

BATCH_SIZE = 4
_HARNESS = "lm-evaluation-harness"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskScore:
    """A metric's value, and its standard error where the harness gives one."""

    value: float
    stderr: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskResult:
    """One metric of one task, over `samples` of its questions, after the harness's `filter`."""

    task: str
    metric: str
    filter: str
    samples: int | None
    higher_is_better: bool | None
    model: TaskScore
    against: TaskScore | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def check_tasks(request: EvaluationRequest) -> None:
    """Before any model is loaded. Raises MissingExtraError without the extra `tasks`, and
    HeadcountError for a task that nobody knows, or options that are for tasks without one."""
    if not request.tasks:
        if request.task_folder is not None or request.task_limit is not None:
            raise HeadcountError("--task-folder and --task-limit are for --tasks NAME: add that")
        return
    if find_spec("lm_eval") is None:
        raise MissingExtraError(
            f"--tasks needs {_HARNESS}: install the extra `tasks`, in a clone of headcount with:"
            " pip install '.[tasks]'"
        )
    if request.task_folder is not None and not request.task_folder.is_dir():
        raise HeadcountError(f"--task-folder {request.task_folder}: no such folder")
    known = _manager(request).all_tasks
    for name in request.tasks:
        if name not in known:
            raise HeadcountError(
                f"--tasks {name}: {_HARNESS} has no such task{_near(name, known)}; --task-folder"
                " FOLDER adds those of your own"
            )


def _near(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=3)
    return f" (near it: {', '.join(close)})" if close else ""


def run_tasks(
    request: EvaluationRequest,
    models: Sequence[LoadedModel],
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[TaskResult, ...]:
    """All tasks of the request, by the model and, if it is there, the original. The harness reads
    the data of its tasks where these say, and runs what their files define. Raises HeadcountError
    with what it says where that fails."""
    with third_party(_HARNESS), _quiet():
        found = [_results(request, loaded, tokenizer) for loaded in models]
    return tuple(_compared(found))


def _results(
    request: EvaluationRequest, loaded: LoadedModel, tokenizer: PreTrainedTokenizerBase
) -> Mapping[str, Any]:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    harnessed = HFLM(
        pretrained=loaded.model, backend="causal", tokenizer=tokenizer, batch_size=BATCH_SIZE
    )
    results: Mapping[str, Any] = simple_evaluate(
        model=harnessed,
        tasks=[*request.tasks],
        limit=request.task_limit,
        task_manager=_manager(request),
        log_samples=False,
    )
    return results


def _manager(request: EvaluationRequest) -> Any:
    """What knows the tasks. The harness' own are thousands of files, read only if they are asked
    for."""
    folder = None if request.task_folder is None else str(request.task_folder)
    if folder is not None:
        own = _indexed(folder, False)
        if set(request.tasks) <= set(own.all_tasks):
            return own
    return _indexed(folder, True)


@lru_cache(maxsize=2)
def _indexed(folder: str | None, all_others: bool) -> Any:
    from lm_eval.tasks import TaskManager

    with third_party(f"{_HARNESS} cannot read its tasks"), _quiet():
        return TaskManager(include_path=folder, include_defaults=all_others)


def _compared(found: Sequence[Mapping[str, Any]]) -> Iterator[TaskResult]:
    """Results as the harness has them: `results[task]` holds "METRIC,FILTER" and, beside it,
    "METRIC_stderr,FILTER", a number or "N/A"."""
    first = found[0]
    for task, values in first["results"].items():
        for key, value in values.items():
            metric, comma, name = key.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
                continue
            scores = [_score(results["results"][task], metric, name) for results in found]
            yield TaskResult(
                task=task,
                metric=metric,
                filter=name,
                samples=first.get("n-samples", {}).get(task, {}).get("effective"),
                higher_is_better=first.get("higher_is_better", {}).get(task, {}).get(metric),
                model=scores[0],
                against=scores[1] if len(scores) > 1 else None,
            )


def _score(values: Mapping[str, Any], metric: str, name: str) -> TaskScore:
    stderr = values.get(f"{metric}_stderr,{name}")
    return TaskScore(
        value=float(values[f"{metric},{name}"]),
        stderr=float(stderr) if isinstance(stderr, int | float) else None,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Only errors of the harness, and of the library that reads its data, are logged."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
