"""The reports of `headcount explain`: a page on a topic, and the list of topics."""

from collections.abc import Callable, Iterator

from headcount.audit.audit_report import model_title
from headcount.audit.audited import Audit
from headcount.report.report import Column, Report, Table

from . import QUESTIONS
from .circuits import induction
from .keeping import cache, window
from .page import Page, text_lines, wrapped
from .projections import head_dim, mha, w_o
from .sharing import gqa, group, mla, mqa
from .subject import Subject, held, subject_of

_PAGES: dict[str, Callable[[Subject], Page]] = {
    page.__name__: page
    for page in (mha, w_o, head_dim, cache, gqa, group, mqa, mla, window, induction)
}
_COLUMNS = tuple(
    Column(key=key, title=key.capitalize()) for key in ("key", "formula", "filled", "value", "unit")
)


def explained(topic: str, audit: Audit, *, by_default: bool = False) -> Report:
    """The page on `topic`, a name of QUESTIONS, with the numbers of `audit`. `by_default`: nobody
    asked for this model."""
    subject = subject_of(audit)
    page = _PAGES[topic](subject)
    kinds = tuple(held(subject))
    lines = (*_head(subject, kinds, page, by_default=by_default), *text_lines(page))
    return Report(
        title=QUESTIONS[topic],
        lines=lines,
        tables=page.tables,
        records=Table(key="sums", title="Sums", columns=_COLUMNS, rows=page.sums),
        document={
            "schema_version": 1,
            "topic": topic,
            "question": QUESTIONS[topic],
            "model": {"id": audit.source.id, "by_default": by_default, "mixers": list(kinds)},
            "applies": page.applies,
            "text": [block for block in page.blocks if isinstance(block, str)],
            "sums": [one.document() for one in page.sums],
            **{table.key: table.documents() for table in page.tables},
            "sources": list(page.sources),
        },
    )


def _head(
    subject: Subject, kinds: tuple[str, ...], page: Page, *, by_default: bool
) -> Iterator[str]:
    """The model, what it has, and whether the topic is about it."""
    yield from wrapped(model_title(subject.audit))
    if by_default:
        yield "(the default; the name of another goes behind the topic)"
    for kind in kinds:
        yield from wrapped(kind, "  ", "    ")
    if not page.applies:
        yield "  The topic does not apply to it: the page shows what it has instead."
    errors = sum(finding.severity == "error" for finding in subject.audit.findings)
    if errors or subject.spec.assumed:
        yield "  `headcount audit` has findings on it: read those before these numbers."
    yield ""


def topics_report() -> Report:
    """The topics, a line each."""
    width = max(map(len, QUESTIONS))
    columns = (Column(key="topic", title="Topic"), Column(key="question", title="Question"))
    table = Table(key="topics", title="Topics", columns=columns, rows=tuple(QUESTIONS.items()))
    return Report(
        title=f"{len(QUESTIONS)} topics",
        lines=tuple(f"{topic:<{width}}  {text}" for topic, text in QUESTIONS.items()),
        notes=("headcount explain TOPIC [MODEL]; without MODEL: of one that has it.",),
        records=table,
        document={"schema_version": 1, "topics": table.documents()},
    )
