"""What tasks of lm-evaluation-harness gave, as people read it."""

from collections.abc import Sequence

from headcount.report.report import Column, Table

from .tasks import TaskResult, TaskScore

_COLUMNS = (
    Column("task", "Task"),
    Column("metric", "Metric"),
    Column("better", "Better"),
    Column("samples", "Questions", "count"),
    Column("model", "Model", "loss"),
    Column("stderr", "±", "loss"),
    Column("against", "Original", "loss"),
    Column("against_stderr", "±", "loss"),
)


def task_table(results: Sequence[TaskResult]) -> Table:
    """A row a metric, each value with its standard error; without an original its columns go."""
    columns = _COLUMNS if results[0].against is not None else _COLUMNS[:-2]
    return Table(
        key="tasks",
        title="Tasks of lm-evaluation-harness",
        columns=columns,
        rows=tuple(_row(one)[: len(columns)] for one in results),
    )


def _row(one: TaskResult) -> tuple[object, ...]:
    filtered = "" if one.filter == "none" else f" ({one.filter})"
    better = {True: "higher", False: "lower", None: None}[one.higher_is_better]
    return (
        one.task,
        one.metric + filtered,
        better,
        one.samples,
        *_numbers(one.model),
        *_numbers(one.against),
    )


def _numbers(score: TaskScore | None) -> tuple[float | None, float | None]:
    return (None, None) if score is None else (score.value, score.stderr)
