"""An uptraining as people read it: before, after and the teacher, and how much is healed."""

from collections.abc import Iterator
from typing import Any

from headcount.report.report import Column, Fact, Report, Table

from .scores import closed, perplexity
from .uptrain_plan import UptrainPlan
from .uptraining import UptrainReport

SCHEMA_VERSION = 1
# Said of more than all of a gap. A KL divergence is never below 0: it is always that of the loss.
_BELOW = "the model's loss on this text is below the teacher's; go by the KL divergence"
_ROWS_OF_TEXT = "rows from the ends of the texts"
_SCORES = (
    Column(key="model", title="Model"),
    Column(key="loss", title="Loss", unit="loss"),
    Column(key="perplexity", title="Perplexity", unit="perplexity"),
    Column(key="delta_loss", title="Above the teacher", unit="loss"),
    Column(key="kl_divergence", title="KL divergence", unit="loss"),
    Column(key="top1_agreement", title="Top-1 agreement", unit="percent"),
)
_HISTORY = (
    Column(key="step", title="Step", unit="count"),
    Column(key="phase", title="Phase", unit="count"),
    Column(key="learning_rate", title="Learning rate", unit="number"),
    Column(key="loss", title="Training loss", unit="loss"),
)


def uptraining_report(report: UptrainReport) -> Report:
    """The whole report."""
    said = "already done, nothing was written" if report.done_before else "uptrained"
    history = report.record["history"]
    return Report(
        title=f"{report.plan.target}: {said}",
        facts=tuple(_facts(report)),
        tables=(
            Table(
                key="scores",
                title="On held-out pairs" if report.plan.has_encoder else "On held-out text",
                columns=_SCORES,
                rows=_rows(report),
            ),
            Table(
                key="history",
                title="Training",
                columns=_HISTORY,
                rows=tuple(tuple(entry[c.key] for c in _HISTORY) for entry in history),
                brief=0,
            ),
        ),
        notes=tuple(_notes(report)),
        document=document(report),
        title_is_answer=True,
    )


def document(report: UptrainReport) -> dict[str, Any]:
    """The report as JSON: stable keys, raw numbers, null for what was not measured."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": str(report.plan.target),
        "converted": report.plan.student.id,
        "teacher": report.plan.teacher.id,
        "before": report.before.document(),
        "after": report.after.document(),
        "teacher_scores": {
            "loss": report.after.teacher_loss,
            "perplexity": perplexity(report.after.teacher_loss),
        },
        "gap_closed": {
            "loss": closed(report.before.delta_loss, report.after.delta_loss),
            "kl_divergence": closed(report.before.kl_divergence, report.after.kl_divergence),
        },
        "steps": report.record["steps"],
        "tokens": report.record["tokens"],
        "held_out": report.record["held_out"],
        "seconds": report.seconds,
        "processes": report.processes,
        "sharded": report.sharded,
        "device": report.device,
        "done_before": report.done_before,
        "settings": report.record["settings"],
        "texts": [] if report.plan.request.pairs else _files(report.plan),
        "pairs": _files(report.plan) if report.plan.request.pairs else [],
        "targets": report.plan.targets,
        "history": report.record["history"],
    }


def _files(plan: UptrainPlan) -> list[dict[str, Any]]:
    return [
        {"name": file.name, "sha256": file.sha256, "unknown": plan.read.unknown}
        for file in plan.read.files
    ]


def _facts(report: UptrainReport) -> Iterator[Fact]:
    plan, tokens = report.plan, report.record["tokens"]
    yield Fact(key="teacher", title="Teacher", value=plan.teacher.id)
    yield Fact(
        key="tokens",
        title="Trained on",
        value=f"{tokens:,} tokens",
        note=_trained_on(plan),
    )
    if report.seconds is not None:
        shared = ", which share the weights" if report.sharded else ""
        yield Fact(
            key="seconds",
            title="Time of the steps",
            value=report.seconds,
            unit="seconds",
            note=f"processes: {report.processes}{shared}, on {report.device}",
        )
    shares = document(report)["gap_closed"]
    for key, title in (("loss", "Gap in loss closed"), ("kl_divergence", "KL divergence closed")):
        if shares[key] is not None:
            yield Fact(
                key=f"closed_{key}",
                title=title,
                value=100 * shares[key],
                unit="percent",
                note=_BELOW if shares[key] > 1 else "",
            )


def _trained_on(plan: UptrainPlan) -> str:
    steps, batch = plan.request.steps, plan.request.batch_size
    rows, longest = len(plan.rows.train), plan.rows.sequence_length
    if plan.has_encoder:
        return (
            f"of targets {plan.targets}: {steps:,} steps of {batch:,} pairs of at most"
            f" {longest:,} tokens; there are {rows:,} pairs to train on"
        )
    return (
        f"{steps:,} steps of {batch:,} rows of {longest:,} tokens; the text has {rows:,} such rows"
    )


def _rows(report: UptrainReport) -> tuple[tuple[object, ...], ...]:
    after = report.after
    scored = tuple(
        (
            name,
            scores.loss,
            perplexity(scores.loss),
            scores.delta_loss,
            scores.kl_divergence,
            100 * scores.top1_agreement,
        )
        for name, scores in (("before", report.before), ("after", after))
    )
    teacher = ("teacher", after.teacher_loss, perplexity(after.teacher_loss), None, None, None)
    return (*scored, teacher)


def _notes(report: UptrainReport) -> Iterator[str]:
    held = report.record["held_out"]
    where = "pairs from the ends of the files" if report.plan.has_encoder else _ROWS_OF_TEXT
    yield (
        f"Scores: {held['tokens']:,} tokens in {held['rows']:,} {where},"
        " which were not trained on; loss and KL(teacher || model) in nats a token."
    )
    if report.plan.read.unknown:
        yield (
            f"{report.plan.read.unknown:,} tokens of what was read are unknown to the tokenizer:"
            " nothing was learned of what they stand for"
        )
