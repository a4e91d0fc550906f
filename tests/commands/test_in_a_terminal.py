"""Commands in a pseudo-terminal: nothing wider than it, and nothing left over of what passed by."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from causal_fixtures import SaveModel
from headcount.cli import main
from headcount.report.view import columns

pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
COLUMNS = 60


def in_a_terminal(*command: str) -> bytes:
    """What the program writes to a terminal of COLUMNS columns, on stdout and stderr."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.Popen(
        [sys.executable, "-m", "headcount", *command],
        **dict.fromkeys(("stdin", "stdout", "stderr"), its),
        env=env | {"TERM": "xterm-256color"},
    )
    os.close(its)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:  # its end, on Linux
        pass
    finally:
        os.close(ours)
        done.wait(timeout=60)
    return written


def screen(written: bytes) -> list[str]:
    """The lines that stay: what returns to a line's start is written over, colours are none."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", written.decode())
    lines: list[list[str]] = [[]]
    column = 0
    for char in re.sub(r"\x1b\[A", "\v", plain):
        if char == "\n":
            lines.append([])
            column = 0
        elif char == "\v":  # bars below each other
            lines.pop()
        elif char == "\r":
            column = 0
        else:
            line = lines[-1]
            line += " " * (column + 1 - len(line))
            line[column] = char
            column += 1
    return ["".join(line).rstrip() for line in lines]


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "no-such-model-of-the-catalogue"),
        ("plan", "llama-3-8b", "--device", "h10"),
        ("plan", "gpt2", "--no-such-option"),
        ("plan", "gpt2", "--batch-size", "0"),
        ("plan", "qwen3-8b", "--device", "l4", "--require", "concurrency>=400"),
        ("reconcile", os.devnull),
        ("page", "docs"),
    ],
)
def test_what_is_said_on_stderr_is_no_wider_than_the_terminal(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)
    shown = screen(in_a_terminal(*command))
    assert max(map(len, shown)) <= COLUMNS
    assert "Working" not in "\n".join(shown)
    assert len(shown) > 2


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("audit", "gpt2"), "Findings: 1 note"),
        (("plan", "gpt2", "--device", "t4"), "Verdict: fits"),
        (("plan", "gpt2", "qwen3-8b", "--device", "t4"), "Qwen/Qwen3-8B: does not fit"),
        (("diff", "gpt2", "gpt2"), "nothing that is counted differs"),
    ],
)
def test_an_answer_that_goes_to_a_file_is_told_in_the_terminal_too(
    command: tuple[str, ...], answer: str, tmp_path: Path
) -> None:
    """In the words that stand last there without a file."""
    file = tmp_path / "report.md"
    shown, plain = (
        " ".join(" ".join(screen(in_a_terminal(*command, *more))).split())
        for more in (("-o", str(file)), ())
    )
    told = shown.partition("report.md: written ")[2]
    assert answer in told and plain.endswith(told)


@pytest.mark.parametrize(
    "command", ["models", "models --search llama", "families", "devices", "rules", "explain"]
)
def test_a_list_is_no_longer_than_the_screen(command: str) -> None:
    """And says how to see all of it, which a pipe does."""
    lines = screen(in_a_terminal(*command.split()))
    assert len(lines) <= 24 and max(map(len, lines)) <= COLUMNS
    whole = CliRunner().invoke(main, command.split()).stdout
    if whole.count("\n") > 24:
        assert "--details" in "\n".join(lines)
        assert screen(in_a_terminal(*command.split(), "--details"))[-3:-1] != lines[-3:-1]


@pytest.mark.needs_convert
@pytest.mark.slow
def test_bars_and_words_go_when_the_work_is_done(tmp_path: Path, save_model: SaveModel) -> None:
    model, text = save_model("llama"), tmp_path / "text.txt"
    text.write_text("a b c d e f g h i j k l m n o p q r s t\n" * 200, encoding="utf-8")
    made = tmp_path / "made"
    options = ("--max-tokens", "256", "--text", str(text))
    taught = ("--text", str(text), "--steps", "4", "--batch-size", "2", "--sequence-length", "16")
    for command, bar in (
        (("convert", str(model), str(made), "--kv-heads", "1", "--quality", "fast"), "calibrating"),
        (("convert", str(model), "--sweep", "1", *options), "sweep"),
        (("evaluate", str(made), "--against", str(model), "--no-speed", *options), "scoring"),
        (("heads", str(made), "--against", str(model)), "heads"),
        (("audit", str(made), "--scan"), "reading"),
        (("uptrain", str(made), "--teacher", str(model), *taught), "uptraining"),
    ):
        written = in_a_terminal(*command)
        assert b"Working..." in written  # torch alone takes longer to load
        assert bar.encode() + b": " in written, command
        shown = "\n".join(screen(written))
        assert not re.search(r"Working|it/s|s/it|\d+%\|", shown), shown
        assert max(map(columns, shown.split("\n"))) <= COLUMNS, command
