"""`headcount mcp` as a client of the official SDK meets it."""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import headcount
from headcount.model import limits
from headcount.model.limits import Limit

mcp = pytest.importorskip("mcp", reason="is the extra mcp")
import anyio  # noqa: E402
from mcp import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

LOG = str(Path(__file__).parents[2] / "docs" / "vllm-startup.log")
Talk = Callable[[Any], Awaitable[None]]


def talk(talk_to: Talk, *, in_process: bool = True) -> None:
    """Runs `talk_to` with a client of a server, here or in a process of its own over stdio."""
    from headcount.library.mcp_server import server

    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    start = ["-c", "from headcount.cli import main; main()", "mcp"]
    program = StdioServerParameters(command=sys.executable, args=start, env=path)

    async def run() -> None:
        async with Client(server() if in_process else program) as client:
            await talk_to(client)

    anyio.run(run)


async def text_of(client: Any, name: str, is_error: bool = False, **arguments: object) -> str:
    result = await client.call_tool(name, arguments)
    assert bool(result.is_error) == is_error, result.content
    (content,) = result.content
    return str(content.text)


def test_a_client_lists_and_calls_the_tools_over_stdio() -> None:
    async def each(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {*tools} == {"audit", "plan", "diff", "reconcile"}
        for tool in tools.values():
            assert tool.description and tool.annotations.read_only_hint
            assert "form" in tool.input_schema["properties"]
        audited = json.loads(await text_of(client, "audit", model="gpt2", form="json"))
        assert audited == headcount.audit("gpt2").to_dict()
        planned = await text_of(client, "plan", model="llama-3-8b", device="h100", engine="vllm")
        assert "fits" in planned and "vllm serve" in planned
        assert "num_key_value_heads" in await text_of(client, "diff", a="gpt2", b="llama-3-8b")
        assert "did not start" in await text_of(client, "reconcile", log=LOG, device="a100-40gb")
        error = await text_of(client, "audit", is_error=True, model="no-such-model")
        assert "no model of the catalogue" in error

    talk(each, in_process=False)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("audit", {"model": "-"}, "standard input"),
        ("audit", {"model": "a\0b"}, "names nothing"),
        ("audit", {"model": "gpt2", "context": "lots"}, "context"),
        ("audit", {"model": "gpt2", "batch_size": 0}, "batch_size"),
        ("plan", {"model": "gpt2", "device": "toaster"}, "no device is named"),
        ("plan", {"model": "gpt2", "options": {"fish": 1}}, "fish"),
        ("plan", {"model": "gpt2", "tp": 2, "options": {"--tp": 4}}, "argument of its own"),
        ("reconcile", {"log": "/dev/null/none.log"}, "none.log"),
        ("reconcile", {"log": "-"}, "standard input"),
    ],
)
def test_what_is_wrong_is_an_error_of_the_tool(
    tool: str, arguments: dict[str, object], said: str
) -> None:
    async def ask(client: Any) -> None:
        assert said in await text_of(client, tool, is_error=True, **arguments)

    talk(ask)


def test_options_of_the_command_may_be_given(tmp_path: Path) -> None:
    async def ask(client: Any) -> None:
        options = {"max-num-seqs": 16, "engine_version": "0.11.0"}
        shared = {"model": "llama-3-8b", "device": "h100", "engine": "vllm", "form": "json"}
        document = json.loads(await text_of(client, "plan", **shared, options=options))
        assert document["engine"]["version"] == "0.11.0"
        assert "--max-num-seqs 16" in document["engine"]["launch_command"]

    talk(ask)


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOOL_CHARACTERS", Limit(200, "characters", "a test"))

    async def ask(client: Any) -> None:
        text = await text_of(client, "audit", model="gpt2")
        assert len(text) < 300 and "more characters are left out" in text
        assert "markdown" in await text_of(client, "audit", True, model="gpt2", form="json")

    talk(ask)
