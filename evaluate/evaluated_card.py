"""What an evaluation found, written into the model card of a converted folder.

The record of the conversion holds the card's digest, so both are replaced; a later evaluation takes
the place of an earlier one.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headcount.convert.plan.card_evaluation import HEAD, with_evaluation
from headcount.convert.plan.existing import DIGEST, read_existing
from headcount.convert.plan.model_card import CARD
from headcount.convert.plan.side_files import RECORD
from headcount.convert.stream.hashing import digest_of, digest_of_bytes
from headcount.convert.stream.os_failures import writing
from headcount.convert.stream.writer import json_bytes, sync_folder, write_bytes
from headcount.model.errors import HeadcountError
from headcount.report.markdown import plain

from .behaviour.behaviour_report import behaviour_warnings
from .evaluation_document import EvaluationReport


def check_card(folder: Path) -> None:
    """Raises HeadcountError unless `folder` is a conversion, whose card is as it was written."""
    existing = read_existing(folder)
    if existing is None or CARD not in existing.manifest:
        raise HeadcountError(f"{folder}: no output of headcount convert, so that it has no card")
    if digest_of(folder / CARD) != existing.manifest[CARD][DIGEST]:
        raise HeadcountError(
            f"{folder / CARD}: was changed since it was written: put the figures into it by hand"
        )


def write_into_card(folder: Path, report: EvaluationReport) -> None:
    """Raises HeadcountError where `check_card` does, or the card cannot be written."""
    check_card(folder)
    existing = read_existing(folder)
    assert existing is not None
    card = with_evaluation((folder / CARD).read_text(encoding="utf-8"), _section(report)).encode()
    entry = {"bytes": len(card), DIGEST: digest_of_bytes(card)}
    record = {**existing.record, "manifest": {**existing.manifest, CARD: entry}}
    contents = {CARD: card, RECORD: json_bytes(record)}
    needed = sum(map(len, contents.values()))
    beside = TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.")
    with writing(folder, needed), beside as made:
        for name, content in contents.items():
            write_bytes(Path(made) / name, content)
        for name in (CARD, RECORD):
            (Path(made) / name).replace(folder / name)
        sync_folder(folder)


def _section(report: EvaluationReport) -> Iterator[str]:
    settings = report.settings
    text = f"{plain(Path(settings.text).name)} (SHA-256 {settings.text_sha256[:16]})"
    windows = f"{report.model.tokens:,} tokens in windows of {settings.window:,}"
    yield f"On {text}, {windows}, {report.model.dtype}:"
    yield ""
    yield f"{HEAD} the original |"
    yield "|---|---|---|"
    for title, own, other in _rows(report):
        yield f"| {title} | {own} | {other} |"
    lost = () if report.behaviour is None else tuple(behaviour_warnings(report.behaviour))
    of_text = report.of_text_without_places  # which begin with a name
    if of_text or lost:
        yield ""
        yield from (f"- {plain(line)}." for line in of_text)
        yield from (f"- {line[0].upper()}{line[1:]}." for line in lost)


def _rows(report: EvaluationReport) -> Iterator[tuple[str, str, str]]:
    model, against, comparison = report.model, report.against, report.comparison
    yield (
        "Loss, nats a token",
        f"{model.loss:.4f}",
        "" if against is None else f"{against.loss:.4f}",
    )
    other = "" if against is None else _number(against.perplexity)
    yield "Perplexity", _number(model.perplexity), other
    if report.delta_loss is not None:
        yield "Loss beyond the original's", f"{report.delta_loss:+.4f}", ""
    if comparison is not None:
        yield "KL divergence, nats a token", f"{comparison.kl_divergence:.4f}", ""
        yield "Top-1 agreement", f"{comparison.top1_agreement:.1%}", ""
    if model.cache.measured is not None:
        before = None if against is None else against.cache.measured
        title = f"Cache of {model.cache.tokens:,} tokens, bytes"
        yield title, f"{model.cache.measured:,}", "" if before is None else f"{before:,}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
