"""Fuzzes every parser for some minutes and keeps the inputs that end in an exception that is none
of ours, or take too long: coverage-guided with atheris where that is installed, else by hypothesis.

make fuzz MINUTES=5                      # all targets, two at once
python tools/fuzz.py --minutes 5 config  # some of them (tests/support/fuzz/fuzz_targets.py)

A finding is made small and written to tests/fuzz/corpus/TARGET, where the tests read it again. Exit
status 1 with findings.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NoReturn

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = Path(__file__).resolve().parent.parent
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(SUPPORT / "fuzz"), str(SUPPORT / "engines"), str(SUPPORT)]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
SECONDS_AN_INPUT = 5.0  # of this process: a loaded machine makes nothing slow
MEMORY = 3 * 2**30  # bytes of data
_AT_START = 45.0  # seconds that a process may take beyond its time
_SHRINKING = 30.0  # seconds for all findings of a target
_LONGEST = 2**20  # bytes of an input
# Of what coverage leads to; 0: another one each time. CI goes the same way each time, so that it
# tells of what was changed.
SEED = int(os.environ.get("HEADCOUNT_FUZZ_SEED", "0"))

if TYPE_CHECKING:
    from fuzz_target import Target


class SlowError(BaseException):
    """An input that took longer than SECONDS_AN_INPUT; no parser may catch it."""


class Session:
    """One target, as long as it has time. `kinds` are the findings, one input each."""

    def __init__(self, target: "Target", seconds: float, result: Path) -> None:
        self.target, self.result = target, result
        self.deadline = time.monotonic() + seconds
        self.executions = 0
        self.kinds: dict[str, bytes] = {}

    def one(self, data: bytes) -> None:
        """Parses one input. Ends the process when the time is over."""
        if time.monotonic() > self.deadline:
            self.finish()
        self.executions += 1
        kind = kind_of(self.target, data)
        if kind is not None and kind not in self.kinds:
            self.kinds[kind] = data

    def finish(self) -> NoReturn:
        from fuzz_shrinking import shrunk

        until = time.monotonic() + _SHRINKING
        small = {
            kind: shrunk(data, lambda other, kind=kind: self._shows(other, kind, until))  # type: ignore[misc]
            for kind, data in self.kinds.items()
        }
        folder = CORPUS / self.target.name
        for data in small.values():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        found = [{"kind": kind, "input": repr(data[:300])} for kind, data in small.items()]
        document = {"executions": self.executions, "findings": found}
        self.result.write_text(json.dumps(document), encoding="utf-8")
        os._exit(0)

    def _shows(self, data: bytes, kind: str, until: float) -> bool:
        """A slow input would be made small for hours."""
        return time.monotonic() < until and kind_of(self.target, data) == kind


def kind_of(target: "Target", data: bytes) -> str | None:
    """What is wrong about how `data` is parsed, and where; None if nothing is."""
    from fuzz_target import check

    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_AN_INPUT)
    try:
        check(target, data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if isinstance(error, SlowError) else f" {Path(last.filename).name}:{last.lineno}"
        return f"{type(error).__name__}{place}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def _too_slow(*_: object) -> NoReturn:
    raise SlowError


def fuzz_here(name: str, seconds: float, result: Path) -> None:
    """Fuzzes one target in this process, which ends with it."""
    guided = importlib.util.find_spec("atheris") is not None
    (by_coverage if guided else by_hypothesis)(name, seconds, result)


def session_of(name: str, seconds: float, result: Path) -> Session:
    from fuzz_targets import TARGETS

    signal.signal(signal.SIGVTALRM, _too_slow)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    return Session(TARGETS[name], seconds, result)


def by_coverage(name: str, seconds: float, result: Path) -> None:
    import atheris

    # Around all of it: what a parser imports only when it runs is instrumented, too.
    with atheris.instrument_imports(include=["headcount"]), tempfile.TemporaryDirectory() as folder:
        session = session_of(name, seconds, result)
        target = session.target
        inputs, words = Path(folder, "inputs"), Path(folder, "words")
        inputs.mkdir()
        for number, data in enumerate((*target.seeds(), *corpus(name))):
            (inputs / str(number)).write_bytes(data)
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))

        def mutate(data: bytes, most: int, seed: int) -> bytes:
            random = Random(seed)
            other = target.mutate(data, random) if random.random() < 0.7 else b""
            return other if 0 < len(other) <= most else atheris.Mutate(data, most)

        options = (f"-dict={words}", f"-max_len={_LONGEST}", "-len_control=0", "-verbosity=0")
        # Time and memory are ours to watch: libFuzzer would end the process, and by the wall clock.
        limits = ("-timeout=86400", "-rss_limit_mb=0", f"-artifact_prefix={folder}/")
        started = (f"-seed={SEED}",) if SEED else ()
        arguments = [sys.argv[0], *options, *limits, *started, str(inputs)]
        atheris.Setup(arguments, session.one, custom_mutator=mutate)
        atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def by_hypothesis(name: str, seconds: float, result: Path) -> None:
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st

    session = session_of(name, seconds, result)
    seeds = [*session.target.seeds(), *corpus(name)]
    quiet = settings(
        max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )

    @quiet
    @given(st.sampled_from(seeds), st.integers(0, 2**32), st.integers(1, 3))
    def example(data: bytes, number: int, times: int) -> None:
        random = Random(number)
        for _ in range(times):
            data = session.target.mutate(data, random)[:_LONGEST]
        session.one(data)

    for round_ in range(10**9):
        seed(round_)(example)()


def corpus(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def fuzz(name: str, seconds: float) -> dict[str, object]:
    """Fuzzes one target in a process of its own. Returns what it did."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, __file__, "--here", str(result), "--seconds", str(seconds), name]
        # It ends without cleaning up: what it writes goes with this folder.
        environment = {**os.environ, "TMPDIR": folder}
        limit = seconds + 2 * _AT_START
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, env=environment
            )
            said = done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            said = "it did not end"
        if not result.exists():
            return {"executions": 0, "findings": [{"kind": "the process died", "input": said}]}
        document: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
        return document


def fuzz_all(names: list[str], minutes: float, jobs: int) -> int:
    """Each target for its share of the time, `jobs` at once. Returns the exit status."""
    seconds = 60 * minutes * jobs / len(names)
    guide = "atheris" if importlib.util.find_spec("atheris") else "hypothesis (pip install atheris)"
    print(
        f"{len(names)} parsers for {seconds:.0f} s each, {jobs} at once, with {guide}", flush=True
    )
    failed = False
    with ThreadPoolExecutor(jobs) as pool:
        for name, done in zip(names, pool.map(lambda n: fuzz(n, seconds), names), strict=True):
            findings = done["findings"]
            assert isinstance(findings, list)
            print(
                f"{name:<12} {done['executions']:>9,} inputs, {len(findings)} findings", flush=True
            )
            for finding in findings:
                print(f"  {finding['kind']}: {finding['input']}", flush=True)
            failed = failed or bool(findings)
    return int(failed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here is not None:
        fuzz_here(given.targets[0], given.seconds, given.here)
        return
    from fuzz_targets import TARGETS

    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    sys.exit(fuzz_all(given.targets or list(TARGETS), given.minutes, given.jobs))


if __name__ == "__main__":
    main()
