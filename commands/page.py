"""`page`: the light half of the package as a page for browsers."""

from pathlib import Path

import click

from headcount.model.units import format_bytes

from .console import Command
from .options.shared import PATH


@click.command(cls=Command)
@click.argument("out", type=PATH)
@click.option(
    "--pyodide",
    type=PATH,
    metavar="FOLDER",
    help="The npm package pyodide, unpacked; default: npm fetches it.",
)
@click.option("--overwrite", is_flag=True, help="Replace a page that OUT holds.")
def page(out: Path, pyodide: Path | None, overwrite: bool) -> None:
    """Write a page to the folder OUT on which audit, plan, diff and reconcile run in a browser.

    The browser computes: any server of static files can serve it. It fetches nothing from anywhere
    else, and what is typed or dropped there stays in the browser. To make it takes Node.js and npm.

    \b
    Example:
      headcount page site
      python -m http.server -d site 8000      # then open http://localhost:8000/
    """
    from headcount.page.folder import write_page

    files = write_page(
        out, pyodide=pyodide, overwrite=overwrite, say=lambda text: click.echo(text, err=True)
    )
    click.echo(f"{out}: a page of {len(files)} files, {format_bytes(sum(files.values()))}")
    click.echo(f"Serve it with: python -m http.server -d {out} 8000")
    click.echo("and open http://localhost:8000/")
