"""Options of the command that starts an engine."""

from collections.abc import Iterator


def option(name: str, value: int | None, default: int | None = None) -> Iterator[str]:
    """`name value`, unless it is what the engine takes anyway."""
    if value is not None and value != default:
        yield f"{name} {value}"
