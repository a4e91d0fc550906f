"""Where each value of an audit came from: what `--explain` prints."""

from collections.abc import Iterator

from headcount.report.report import Column, Table

from .audited import Audit


def origins_table(audit: Audit) -> Table:
    columns = ("Field", "Value", "Where it came from")
    return Table(
        key="origins",
        title="Where each value came from",
        columns=tuple(Column(key=title.split()[0].lower(), title=title) for title in columns),
        rows=(
            *(
                (name, _short(origin.value), origin.source)
                for name, origin in sorted(audit.spec.origins.items())
            ),
            *_catalogue_sources(audit),
        ),
    )


def _catalogue_sources(audit: Audit) -> Iterator[tuple[str, str, str]]:
    entry = audit.source.entry
    for source in entry.sources if entry else ():
        yield "(config)", entry.confidence if entry else "", source


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 48 else f"{text[:45]}..."
