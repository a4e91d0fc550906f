"""Ends that a user does not plan: a full disk behind stdout, and Ctrl-C while modules load."""

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
