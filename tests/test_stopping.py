"""Ends that a user does not plan: closed and full streams, and Ctrl-C while modules load."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEADCOUNT = (sys.executable, "-c", "from headcount.cli import main; main(prog_name='headcount')")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", ["--help", "--version", "audit --help", "models"])
def test_a_full_disk_is_one_line(arguments: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*HEADCOUNT, *arguments.split()], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3
    assert done.stderr == ("Error: standard output: cannot be written: No space left on device\n")


EVERY = [
    *("--help", "--version", "audit --help", "audit gpt2", "plan gpt2", "diff gpt2 gpt2-medium"),
    *("rules", "families", "models", "devices", "reconcile log", "convert --families"),
    "explain gqa gpt2",
]
LOG = "INFO 09-01 12:00:00 [kv_cache_utils.py:864] GPU KV cache size: 1,000 tokens\n"
posix = pytest.mark.skipif(os.name == "nt", reason="a shell closes the streams")


def closed(arguments: str, redirected: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The command as a shell starts it with streams `redirected`."""
    (folder / "log").write_text(LOG)
    script = f'exec "$@" {redirected}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *HEADCOUNT, *arguments.split()],
        capture_output=True,
        text=True,
        cwd=folder,
    )


@posix
@pytest.mark.parametrize("arguments", EVERY)
def test_a_closed_standard_output_is_one_line(arguments: str, tmp_path: Path) -> None:
    said = "Error: standard output: cannot be written: Bad file descriptor\n"
    plain = closed(arguments, "", tmp_path)
    assert plain.returncode in (0, 2), plain.stderr
    done = closed(arguments, ">&-", tmp_path)
    if plain.returncode == 0:
        assert (done.returncode, done.stderr) == (3, said)
    else:  # which had nothing to print
        assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert closed(arguments, "<&- 2>&-", tmp_path).stdout == plain.stdout


@posix
@pytest.mark.parametrize(
    "redirected", ["2>&-", "2>/dev/full", "<&- 2>&-", "2>/dev/full >/dev/full"]
)
@pytest.mark.parametrize("arguments", ["nothing", "audit nothing-of-this-name"])
def test_an_error_that_nobody_hears_keeps_its_status(
    arguments: str, redirected: str, tmp_path: Path
) -> None:
    done = closed(arguments, redirected, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


@posix
def test_a_report_in_a_file_needs_no_standard_output(tmp_path: Path) -> None:
    done = closed("audit gpt2 -o report", "<&- >&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "report").read_text() == closed("audit gpt2", "", tmp_path).stdout


@posix
def test_what_is_said_on_a_closed_descriptor_gets_into_no_file(tmp_path: Path) -> None:
    """Without something in its place, the next file that is opened would be descriptor 2."""
    code = (
        "import os, sys\n"
        "from headcount.commands.output.standard_streams import settle_streams\n"
        "settle_streams()\n"
        "file = os.open('weights', os.O_WRONLY | os.O_CREAT)\n"
        "assert file > 2\n"
        "os.write(2, b'warning')\n"
        "print('warning', file=sys.stderr)\n"
        "assert os.fstat(file).st_size == 0\n"
        "os._exit(0)\n"
    )
    script = 'exec "$@" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, "sh", sys.executable, "-c", code], cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "weights").read_bytes() == b""


INTERRUPT = """
import os, signal, sys
module = sys.argv[1]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["audit", "gpt2"]
from headcount.cli import main
main(prog_name="headcount")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has another Ctrl-C")
@pytest.mark.parametrize(
    ("module", "status"),
    [
        *((name, -2) for name in ("click", "headcount.commands.console")),
        *((name, 130) for name in ("headcount.commands.audit", "headcount.audit.several")),
        ("tabulate", 130),
    ],
)
def test_an_interrupt_while_modules_load_shows_no_traceback(module: str, status: int) -> None:
    """As Ctrl-C right after the start: -2 is how a process ended by SIGINT shows here."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT, module], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status
    assert done.stderr == ("" if status < 0 else "Interrupted.\n")


def test_importing_the_commands_leaves_ctrl_c_alone() -> None:
    code = (
        "import signal, headcount.cli\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "import threading, importlib\n"
        "thread = threading.Thread(target=importlib.reload, args=(headcount.cli,))\n"
        "thread.start(); thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


TWO_AT_ONCE = """
import os, signal
from headcount.running.signals import exit_cleanly, on_signals
both = (signal.SIGTERM, signal.SIGINT)
with on_signals(exit_cleanly):
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    for number in both:
        os.kill(os.getpid(), number)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    finally:
        print("cleaned up")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot hold signals back")
def test_two_signals_at_once_are_one_end_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", TWO_AT_ONCE], capture_output=True, text=True)
    assert "ignored due to race condition" not in done.stderr
    assert (done.stdout, done.stderr.count("Traceback")) == ("cleaned up\n", 1)
    assert done.stderr.endswith("KeyboardInterrupt\n")  # which the command line shows as one line


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGPIPE")
@pytest.mark.parametrize("arguments", [("audit", "gpt2"), ("rules",), ("--help",)])
def test_a_reader_that_went_away_is_told_from_findings(arguments: tuple[str, ...]) -> None:
    """As by SIGPIPE: quiet, and neither 0 nor 1."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*HEADCOUNT, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + 13, b"")
