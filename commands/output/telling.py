"""What is said on stderr beside a report."""

from collections.abc import Iterable

import click


def say_warnings(lines: Iterable[str]) -> None:
    """Each as a warning."""
    for line in lines:
        click.echo(f"Warning: {line}", err=True)


def say_if_without_charts(form: str) -> None:
    """For a command that draws charts, before it works: whoever waits for a page should not learn
    only then that it has none."""
    from headcount.report.charts import is_available

    if form == "html" and not is_available():
        how = "in a clone of headcount, pip install '.[charts]'"
        click.echo(
            f"Without plotly pages have no charts: for them install the extra: {how}", err=True
        )
