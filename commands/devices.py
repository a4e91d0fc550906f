"""`devices`: the accelerators that `plan` knows."""

from pathlib import Path

import click

from headcount.report.report import Column, Report, Table

from .console import Command, write_reports
from .options.shared import output_options

_COLUMNS = (
    Column(key="key", title="Device"),
    Column(key="name", title="Name"),
    Column(key="per_card", title="On a card", unit="count", drop=1),
    Column(key="memory", title="Memory", unit="bytes"),
    Column(key="usable_memory", title="Usable", unit="bytes"),
    Column(key="bandwidth", title="Bandwidth", unit="bandwidth"),
    Column(key="flops", title="16-bit FLOP/s", unit="flops", drop=2),
)
_ONLY_JSON = ("vendor", "platform", "capability", "usable_source", "source", "aliases")


@click.command(cls=Command)
@output_options
def devices(form: str, output: Path | None) -> None:
    """List the accelerators that `plan` knows, with usable memory and bandwidth.

    \b
    Example:
      headcount devices --format markdown
    """
    write_reports([_report()], form, output)


def _report() -> Report:
    """All accelerators of the table."""
    from headcount.plan.devices import all_devices

    found = all_devices()
    keys = [column.key for column in _COLUMNS]
    rows = tuple(tuple(getattr(device, key) for key in keys) for device in found)
    return Report(
        title=f"{len(found)} devices",
        tables=(Table(key="devices", title="Devices", columns=_COLUMNS, rows=rows),),
        notes=(
            "A device is what a framework sees as one, of which some cards have several; usable"
            " memory is what it sees of a fresh one. See docs/devices.md.",
        ),
        document={
            "schema_version": 1,
            "devices": [
                {key: getattr(device, key) for key in (*keys, *_ONLY_JSON)} for device in found
            ],
        },
    )
