"""Reads commands, a line each, with vLLM's own parser of arguments, and prints those that it does
not take, with its reason. Runs in vLLM's environment. Models are not looked for."""

import ast
import shlex
import sys
from collections.abc import Callable
from functools import lru_cache

import torchvision_operators  # noqa: F401
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

FOLDER = "."


def reason(command: str) -> str | None:
    """Why the command is not taken; None where it is."""
    words = [word for word in shlex.split(command) if not word.startswith("VLLM_")]
    return _tried(lambda: _of_class(words[2]) if words[0] == "python" else _of_server(words[3:]))


def _of_class(code: str) -> object:
    call = ast.parse(code).body[-1]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    options = {str(each.arg): ast.literal_eval(each.value) for each in call.value.keywords}
    return EngineArgs(model=FOLDER, **options)


def _of_server(words: list[str]) -> object:
    return AsyncEngineArgs.from_cli_args(_parser().parse_args([FOLDER, *words, "--model", FOLDER]))


@lru_cache(maxsize=1)
def _parser() -> FlexibleArgumentParser:
    parser = FlexibleArgumentParser()
    parser.add_argument("model_tag")
    AsyncEngineArgs.add_cli_args(parser)
    return parser


def _tried(make: Callable[[], object]) -> str | None:
    try:
        make()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return None


if __name__ == "__main__":
    for line in sys.stdin:
        found = reason(line)
        if found is not None:
            print(f"{line.strip()}\t{found}")
