"""How long a page of `headcount page` takes to its first answer in Chromium: docs/page.md.

    python bench/page.py FOLDER [RUNS]

A browser that has never seen the page, each time: seconds from the call to the verdict on the
screen, of the question that the page begins with (llama-3.1-8b on an h100, 8,192 tokens).
"""

import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from chromium import Tab, chromium, find_chromium

_ANSWERED = "document.querySelector('#answer')?.getAttribute('aria-busy') === 'false'"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def first_answer(program: str, address: str) -> float:
    """Seconds."""
    with tempfile.TemporaryDirectory() as folder, chromium(program, Path(folder)) as browser:
        tab = Tab(browser)
        started = time.monotonic()
        tab.send("Page.navigate", url=address)
        tab.wait_for(_ANSWERED)
        return time.monotonic() - started


def main() -> None:
    folder, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium on this machine")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
    taken = sorted(first_answer(program, address) for _ in range(runs))
    print(f"{version}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"first answer of {runs} runs: {taken[0]:.1f} to {taken[-1]:.1f} s", end="")
    print(f", median {taken[len(taken) // 2]:.1f} s")


if __name__ == "__main__":
    main()
