"""What somebody may have meant who named a command or an option that there is not."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import click

# What people call them elsewhere.
_ELSEWHERE = {
    **{"compare": "diff", "list": "models", "search": "models", "gpus": "devices"},
    **{"info": "audit", "inspect": "audit", "show": "audit", "estimate": "plan", "fit": "plan"},
    **{"eval": "evaluate", "train": "uptrain", "verify": "convert --verify", "docs": "explain"},
}


def command_meant(name: str, commands: Mapping[str, click.Command]) -> str:
    """A sentence for a command `name` that there is not, with a space before it; empty: none is
    near."""
    from headcount.sources.catalogue import find_row

    if find_row(name) is not None or Path(name).exists():
        return f" To audit that model: headcount audit {name}"
    near = _ELSEWHERE.get(name.lower()) or next(iter(get_close_matches(name, commands, n=1)), None)
    return f" Did you mean {near!r}?" if near else ""


def option_meant(option: str, commands: Mapping[str, click.Command]) -> str:
    """Which commands have the option that another was given; empty: none has."""
    having = [name for name, command in commands.items() if _has(command, option)]
    return f" It is an option of {' and '.join(sorted(having))}." if having else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in param.opts for param in command.params)
