"""What `headcount mcp` serves: audit, plan, diff and reconcile as tools of the Model Context
Protocol, by its official SDK (extra `mcp`).

The tools read what the commands read, as the user who started the server: the catalogue, config
and headers of paths and of the Hub, start-up logs. They write nothing and run nothing of a model's.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.model.version import __version__

from .audits import audit
from .diffs import diff
from .plans import plan
from .reconciliations import reconcile
from .result import Result

Form = Literal["markdown", "json"]
_INSTRUCTIONS = (
    "Counts attention heads and what they cost. A model is a name such as llama-3-8b or"
    " org/name[@revision] of the Hugging Face Hub, or the path of a folder, a config.json or a file"
    " of weights. Sizes may be written 8k (8,192 tokens) or 80GiB. The form json gives raw integers"
    " of bytes, markdown the same to read."
)


def server() -> "MCPServer[Any]":
    """The server with its tools, which stdin and stdout are to be connected to (`run`)."""
    made = MCPServer("headcount", version=__version__, instructions=_INSTRUCTIONS)
    for tool in (_audit, _plan, _diff, _reconcile):
        made.add_tool(
            tool,
            name=tool.__name__.lstrip("_"),
            description=tool.__doc__,
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True),
            structured_output=False,
        )
    return made


def _audit(
    model: str,
    context: int | str | None = None,
    batch_size: int = 1,
    kv_dtype: str | None = None,
    encoder_tokens: int | str | None = None,
    form: Form = "markdown",
) -> str:
    """Heads, K/V heads, attention parameters and KV-cache bytes of a model, layer by layer, and
    what is wrong with its config and files. `context` (8192, "8k") and `kv_dtype` size the cache.
    """
    sizes: dict[str, Any] = {"context": context, "batch_size": batch_size, "kv_dtype": kv_dtype}
    return _answer(lambda: audit(_named(model), **sizes, encoder_tokens=encoder_tokens), form)


def _plan(
    model: str,
    device: str | None = None,
    context: int | str | None = None,
    batch_size: int = 1,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    tp: int = 1,
    engine: str | None = None,
    engine_version: str | None = None,
    utilisation: float | None = None,
    require: str | None = None,
    target_users: int | None = None,
    options: dict[str, Any] | None = None,
    form: Form = "markdown",
) -> str:
    """The memory that serving a model takes, and whether it fits: weights, KV cache and overhead
    against `device` ("h100", "80GiB", or several with commas), as `engine` accounts (vllm, sglang,
    llama.cpp, tensorrt-llm, transformers). `require` is a gate ("context>=32k,concurrency>=4"),
    `target_users` searches devices that serve so many requests at once, and `options` are further
    options of `headcount plan --help` by name, as {"max_num_seqs": 64}."""
    given: dict[str, Any] = {
        **{"device": device, "context": context, "batch_size": batch_size, "dtype": dtype},
        **{"kv_dtype": kv_dtype, "tp": tp, "engine": engine, "engine_version": engine_version},
        **{"utilisation": utilisation, "require": require, "target_users": target_users},
    }
    return _answer(lambda: plan(_named(model), **_with(given, options)), form)


def _diff(
    a: str,
    b: str,
    context: int | str | None = None,
    batch_size: int = 1,
    kv_dtype: str | None = None,
    form: Form = "markdown",
) -> str:
    """What differs between the models `a` and `b`, layer by layer: heads, windows, parameters and
    cache bytes."""
    sizes: dict[str, Any] = {"context": context, "batch_size": batch_size, "kv_dtype": kv_dtype}
    return _answer(lambda: diff(_named(a), _named(b), **sizes), form)


def _reconcile(
    log: str,
    model: str | None = None,
    device: str | None = None,
    context: int | str | None = None,
    engine: str | None = None,
    engine_version: str | None = None,
    options: dict[str, Any] | None = None,
    form: Form = "markdown",
) -> str:
    """Holds the start-up log of a serving engine (the path of a file, or a folder of them) against
    what the same start gives by the engine's rules, and explains a start that failed: what was
    needed, what there was, and the smallest change that would do. The others say what the log does
    not; `options` as of plan."""
    given: dict[str, Any] = {
        **{"model": model, "device": device, "context": context},
        **{"engine": engine, "engine_version": engine_version},
    }
    return _answer(lambda: reconcile(_named(log), **_with(given, options)), form)


def _named(name: str) -> str:
    """Raises HeadcountError for standard input, where the protocol speaks."""
    if name == "-":
        raise HeadcountError("- is standard input, which the protocol uses: give a name or a path")
    return name


def _with(given: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Raises HeadcountError for an option that is given twice."""
    more = {name.lstrip("-").replace("-", "_"): value for name, value in (options or {}).items()}
    twice = next((name for name in more if given.get(name) is not None), None)
    if twice is not None:
        raise HeadcountError(f"options: {twice} is an argument of its own: give it there")
    return {**given, **more}


def _answer(call: Callable[[], Result], form: Form) -> str:
    """The report of a call, of bounded length. Raises ToolError, whose text the client is told."""
    try:
        result = call()
        return _bounded(result.to_json() if form == "json" else result.to_markdown(), form)
    except (HeadcountError, TypeError) as error:  # a TypeError names an option that is none
        raise ToolError(str(error)) from error


def _bounded(text: str, form: Form) -> str:
    most = limits.TOOL_CHARACTERS.most
    if len(text) <= most:
        return text
    if form == "json":
        raise HeadcountError(
            f"the JSON has {len(text):,} characters, of which no more than {most:,} are sent: ask"
            " for the form markdown, which shows layers that are alike once"
        )
    return f"{text[:most]}\n\n… {len(text) - most:,} more characters are left out.\n"
