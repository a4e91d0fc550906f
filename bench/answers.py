"""Time to the answer, and lines to read: headcount beside three tools, as people type them.

    python bench/answers.py ENVIRONMENTS [--runs N]

The question: does Llama-3.1-8B serve 8,192 tokens on an H100? Tools are installed as
`bench/peers.py` installs them, and ask the same stand-in for the Hub on this machine, so that no
network is in their times; headcount reads its catalogue, and once more a folder. Each is run N
times in turns. Prints the median seconds, those as a multiple of Python's own start, the lines on
the screen, how many are wider than 80 columns, and whether the last one is the
answer: what fits, or what was found.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from peers import HF_MEM, KVFIT, PEERS, Peer, environment, made

# It takes no address but https: the stand-in has none.
_MODELINFO_HERE = """
import os, modelinfo.parsers.huggingface as hub
from modelinfo.cli import main
hub._get_hf_endpoint = lambda: os.environ["HF_ENDPOINT"]
main()
"""
hub_server = import_module("hub_server")  # whose folder is on the path of `peers`
NAME, CONTEXT = "meta-llama/Llama-3.1-8B", "8192"
_MODELINFO = Peer("modelinfo", ("modelinfo-cli==1.4.4",), lambda one: (one.name,), float)
WIDTH = 80  # columns


@dataclass(frozen=True)
class Asked:
    """`typed` is what a person types, `command` what runs it here."""

    tool: str
    typed: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    seconds: float
    text: str


def answered(command: tuple[str, ...], environ: Mapping[str, str]) -> Answer:
    """Raises CalledProcessError with what the tool says, if it fails."""
    start = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    return Answer(time.perf_counter() - start, ran.stdout)


def asked(environments: Path, folder: Path) -> list[Asked]:
    peers = {peer.name: peer for peer in (*PEERS, _MODELINFO)}

    def python(name: str) -> str:
        return str(environment(peers[name], environments))

    own = (sys.executable, "-m", "headcount")
    plan = ("--device", "h100", "--context", CONTEXT)
    return [
        Asked("Python itself", "python -c pass", (sys.executable, "-c", "pass")),
        Asked("headcount", "audit llama-3.1-8b", (*own, "audit", "llama-3.1-8b")),
        Asked(
            "headcount",
            f"headcount plan llama-3.1-8b {' '.join(plan)}",
            (*own, "plan", "llama-3.1-8b", *plan),
        ),
        Asked(
            "headcount",
            f"headcount plan FOLDER {' '.join(plan)}",
            (*own, "plan", str(folder), *plan),
        ),
        Asked(
            "hf-mem 0.5.6",
            f"hf-mem --model-id {NAME} --experimental --max-model-len {CONTEXT}",
            (
                *(python("hf-mem"), "-c", HF_MEM, "--model-id", NAME, "--experimental"),
                *("--max-model-len", CONTEXT),
            ),
        ),
        Asked(
            "kvfit 0.3.0",
            f"kvfit {NAME} --context {CONTEXT} --hardware h100 --weight-gib 15",
            (
                *(python("kvfit"), "-c", KVFIT, NAME, "--context", CONTEXT),
                *("--hardware", "h100", "--weight-gib", "15"),
            ),
        ),
        Asked(
            "modelinfo 1.4.4",
            f"modelinfo {NAME} --context {CONTEXT} --gpu H100",
            (
                *(python("modelinfo"), "-c", _MODELINFO_HERE, NAME, "--context", CONTEXT),
                *("--gpu", "H100"),
            ),
        ),
    ]


def row(one: Asked, found: list[Answer], bare: float) -> str:
    seconds = median(answer.seconds for answer in found)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", found[-1].text).splitlines()  # without colours
    wide = sum(len(line) > WIDTH for line in lines)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    verdict = "yes" if re.search("fit|findings", last.lower()) else "no"
    return (
        f"| {one.tool} | `{one.typed}` | {seconds:.2f} | {seconds / bare:.1f} | {len(lines)}"
        f" | {wide} | {verdict} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("environments", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        hub = hub_server.Hub(folder=Path(scratch))
        one, _ = made(NAME, hub.folder, hub.counts)
        tools = asked(given.environments, one.folder)
        found: dict[Asked, list[Answer]] = {tool: [] for tool in tools}
        with hub_server.serve(hub):
            environ = {
                **os.environ,
                **{"HF_ENDPOINT": hub.url, "HF_HOME": str(Path(scratch) / "home")},
                **{"HF_HUB_DISABLE_XET": "1", "COLUMNS": str(WIDTH)},
            }
            environ.pop("HF_HUB_OFFLINE", None)
            for _ in range(given.runs):
                for tool in tools:
                    found[tool].append(answered(tool.command, environ))
    bare = median(answer.seconds for answer in found[tools[0]])
    print(f"Run on {date.today()}, the median of {given.runs} runs.\n")
    print(
        "| tool | typed | seconds | x Python's start | lines | beyond 80 columns | verdict last |"
    )
    print("|---|---|---:|---:|---:|---:|---|")
    for tool, answers in found.items():
        print(row(tool, answers, bare))
    return 0


if __name__ == "__main__":
    sys.exit(main())
