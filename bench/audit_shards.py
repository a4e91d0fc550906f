"""How long an audit of 191 shards takes, from disk and from a Hub that answers in 50 ms.

Run with `python bench/audit_shards.py [RUNS]` where headcount is installed. The shards are sparse
files with the headers of Llama-3.1-405B; the Hub is a server in another process of this machine.
Times are wall seconds, the best of RUNS: of the whole process `audit FOLDER`; and, for the Hub, of
the process and of the reading alone (requests, parsing), which is what the latency bounds.
"""

import os
import subprocess
import sys
import time
from multiprocessing import Process, Queue
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from hub_server import Hub, serve
from shards import make_shards

LATENCY = 0.05
AUDIT = (sys.executable, "-c", "from headcount.cli import audit_main; audit_main()")
READ = """
import sys, time
from headcount.sources.hub import read_hub
for _ in range(3):
    start = time.perf_counter()
    source = read_hub(sys.argv[1])
    print(time.perf_counter() - start, len(source.checkpoint.files), file=sys.stdout)
"""


def run_server(folder: Path, addresses: "Queue[str]") -> None:
    """Serves until the process is ended."""
    with serve(Hub(folder=folder, latency=LATENCY)) as hub:
        addresses.put(hub.url)
        time.sleep(3600)


def seconds(command: tuple[str, ...], **environment: str) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | environment
    )
    return time.perf_counter() - start, done.stdout


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with TemporaryDirectory() as scratch:
        folder = make_shards(Path(scratch, "org", "big"))
        local = min(seconds((*AUDIT, str(folder)))[0] for _ in range(runs))
        addresses: Queue[str] = Queue()
        server = Process(target=run_server, args=(Path(scratch), addresses), daemon=True)
        server.start()
        online = {"HF_ENDPOINT": addresses.get(), "HF_HUB_OFFLINE": "", "HF_HOME": scratch}
        remote = min(seconds((*AUDIT, "org/big"), **online)[0] for _ in range(runs))
        lines = [
            line
            for _ in range(runs)
            for line in seconds((sys.executable, "-c", READ, "org/big"), **online)[1].splitlines()
        ]
        reading = min(float(line.split()[0]) for line in lines)
        server.terminate()
    print(f"from disk, whole process     {local:.2f} s")
    print(f"from the Hub, whole process  {remote:.2f} s")
    print(f"from the Hub, reading alone  {reading:.2f} s = {reading / LATENCY:.1f} latencies")


if __name__ == "__main__":
    main()
