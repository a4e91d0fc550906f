"""What a shell completes: models of the catalogue, which stand beside files, and devices."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_model(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Names and aliases of the catalogue; where none begins so, the shell completes files."""
    from click.shell_completion import CompletionItem  # only completing loads it

    from headcount.sources.catalogue import catalogue

    names = {name for row in catalogue() for name in (row.id, *row.aliases, *row.checkpoints)}
    found = [CompletionItem(name) for name in _beginning(names, incomplete)]
    # First, since click's script for bash forgets all that stands before it.
    return [CompletionItem(incomplete, type="file"), *found]


def complete_device(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Keys of the devices, of several the one behind the last comma."""
    from click.shell_completion import CompletionItem

    from headcount.plan.devices import all_devices

    before, comma, last = incomplete.rpartition(",")
    taken = {*before.split(",")}
    devices = {device.key: device.name for device in all_devices() if device.key not in taken}
    return [
        CompletionItem(f"{before}{comma}{key}", help=devices[key])
        for key in _beginning(devices, last)
    ]


def _beginning(names: Iterable[str], incomplete: str) -> Iterator[str]:
    start = incomplete.lower()
    return (name for name in sorted(names) if name.lower().startswith(start))
