"""`mcp`: the light commands as tools for assistants, over standard input and output."""

from importlib.util import find_spec

import click

from headcount.model.errors import MissingExtraError

from .console import Command
from .output.waiting import end_waiting


@click.command(cls=Command)
def mcp() -> None:
    """Serve audit, plan, diff and reconcile as tools of the Model Context Protocol.

    A client starts this command and speaks with it over standard input and output. What the tools
    read is what you may read: docs/integrations.md says what that is.

    \b
    Example:
      {"mcpServers": {"headcount": {"command": "headcount", "args": ["mcp"]}}}
    """
    if find_spec("mcp") is None:
        raise MissingExtraError(
            "this command needs mcp: install the extra `mcp`, in a clone of headcount with:"
            " pip install '.[mcp]'"
        )
    from headcount.library.mcp_server import server

    end_waiting()  # for a client, of which nobody knows when it speaks
    server().run("stdio")
