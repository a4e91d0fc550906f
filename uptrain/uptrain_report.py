"""An uptraining as people read it: before, after and the teacher, and how much is healed."""

from collections.abc import Iterator
from typing import Any

from headcount.report.report import Column, Fact, Report, Table

from .scores import closed, perplexity
from .uptraining import UptrainReport

SCHEMA_VERSION = 1
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
            Table(key="scores", title="On held-out text", columns=_SCORES, rows=_rows(report)),
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
        "texts": [
            {"name": text.name, "sha256": text.sha256, "unknown": report.plan.unknown}
            for text in report.plan.texts
        ],
        "history": report.record["history"],
    }


def _facts(report: UptrainReport) -> Iterator[Fact]:
    plan, tokens = report.plan, report.record["tokens"]
    yield Fact(key="teacher", title="Teacher", value=plan.teacher.id)
    rows, batch = len(plan.rows.train), plan.request.batch_size
    yield Fact(
        key="tokens",
        title="Trained on",
        value=tokens,
        unit="tokens",
        note=f"{report.record['steps']:,} steps of {batch:,} rows of"
        f" {plan.rows.sequence_length:,} tokens; the text has {rows:,} such rows",
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
            yield Fact(key=f"closed_{key}", title=title, value=100 * shares[key], unit="percent")


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
    yield (
        f"Scores: {held['tokens']:,} tokens in {held['rows']:,} rows from the ends of the texts,"
        " which were not trained on; loss and KL(teacher || model) in nats a token."
    )
    if report.plan.unknown:
        yield (
            f"{report.plan.unknown:,} tokens of the text are unknown to the tokenizer: nothing was"
            " learned of what they stand for"
        )
