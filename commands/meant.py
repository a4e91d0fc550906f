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

_USERS, _CONTEXT, _BATCH = "--target-users", "--context", "--batch-size"
_OPTIONS_ELSEWHERE = {
    **dict.fromkeys(("--users", "--user", "--concurrency", "--num-users", "--requests"), _USERS),
    **dict.fromkeys(("--ctx", "--max-len", "--seq-len", "--seqlen", "--tokens"), _CONTEXT),
    **dict.fromkeys(("--batch", "--bs", "--batchsize"), _BATCH),
    **dict.fromkeys(("--gpus", "--num-gpus", "--n-gpus", "--devices", "--gpu-count"), "--tp"),
    **dict.fromkeys(("--kv-cache", "--cache-dtype"), "--kv-dtype"),
    **dict.fromkeys(("--quantization", "--quant", "--weights-dtype", "--precision"), "--dtype"),
    **dict.fromkeys(("--json", "--csv", "--markdown", "--html"), "--format"),
    **dict.fromkeys(("--out", "--output-dir"), "--output"),
    **dict.fromkeys(("--verbose", "--all", "--full"), "--details"),
}


def command_meant(name: str, commands: Mapping[str, click.Command]) -> str:
    """A sentence for a command `name` that there is not, with a space before it; empty: none is
    near."""
    from headcount.sources.catalogue import find_row

    if find_row(name) is not None or Path(name).exists():
        return f" To audit that model: headcount audit {name}"
    near = _ELSEWHERE.get(name.lower()) or next(iter(get_close_matches(name, commands, n=1)), None)
    return f" Did you mean {near!r}?" if near else ""


def option_meant(
    error: click.NoSuchOption, command: click.Command, commands: Mapping[str, click.Command]
) -> str:
    """Which option somebody may have meant: one that is called otherwise here, one that another
    command has, or those spelt most like it. Empty: none is near."""
    option = error.option_name
    meant = _OPTIONS_ELSEWHERE.get(option, "")
    if meant and _has(command, meant):
        return f" Did you mean {meant}?"
    having = [name for name, other in commands.items() if _has(other, option)]
    if having:
        return f" It is an option of {' and '.join(sorted(having))}."
    near = error.possibilities or []
    return f" Did you mean {' or '.join(near[:2])}?" if near else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in param.opts for param in command.params)
