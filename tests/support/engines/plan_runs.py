"""`headcount plan` as a user types it."""

import json
from typing import Any

from click.testing import CliRunner, Result

from headcount.cli import main


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["plan", *args])


def document(*args: str) -> Any:
    """The JSON document, whether or not all that is required holds."""
    result = run(*args, "--format", "json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def engine(*args: str) -> Any:
    return document(*args)["engine"]
