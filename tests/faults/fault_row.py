"""One row of the table: a command that was run without a fault, and what must hold whatever goes
wrong with it."""

import hashlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .fault_columns import READING, Column
from .faulty_runs import Fault, FaultyRuns, Ran
from .scenarios import Scenario

State = dict[str, str]
# What a kill, or a disk that takes no removal, may leave: hidden, and named after the target.
_OF_A_KILL = r"(TMPDIR/)?\.(out|report\.json|headcount)\..*"
# Four bytes with which Python's tempfile tries a folder.
_OF_TEMPFILE = r"TMPDIR/[a-z0-9_]{8}"
_NOTES = (
    r"resuming ",
    r"removed .*, which a (killed sweep|stopped run) ",
    r"stopped; \d+ rewritten layers? (is|are) kept in ",
    r".*: holds a checkpoint of step \d+ of \d+; the same command goes on from there$",
    r".*: holds no checkpoint yet, so that the same command begins with the first step; ",
    r".*: is now what a killed run had finished$",
    r".*: what it held before is in ",
    r".*: holds what .* was, since it could not be put back$",
    r".*: is back: a run was killed$",
    r".*: cannot be removed; nothing in it is needed any more$",
    r"(?!Error: ).*: is complete",
)


@dataclass(kw_only=True)
class Row:
    """`base` holds `inputs`, `tmp` and the folder of this scenario."""

    scenario: Scenario
    base: Path
    runs: FaultyRuns
    initial: State = field(init=False)
    final: State = field(init=False)
    clean: Ran = field(init=False)
    _inputs: dict[str, tuple[int, ...]] = field(init=False)
    _good_starts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._inputs = _identities(self.base / "inputs")
        shutil.rmtree(self.pristine, ignore_errors=True)
        self.pristine.mkdir()
        self.scenario.before(self.pristine, self.base / "inputs")
        self.initial = self._state_after_reset()
        first = self._run()
        assert first.status == 0, first
        self.final = self.state()
        assert {*self.final} == {*self.finals_in(self.final)}, {*self.final}
        self._reset()
        self.clean = self._run()  # with all modules there: as the runs that follow
        assert self.state() == self.final, "two runs without a fault differ"

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def pristine(self) -> Path:
        """What the command finds in its folder."""
        return self.base / f"before {self.scenario.name}"

    def finals_in(self, state: State) -> State:
        """The part of `state` that is the output."""
        return {n: v for n, v in state.items() if n.split("/")[0] in self.scenario.finals}

    def state(self) -> State:
        """Everything in the folder of the command and in that of temporary files."""
        found = {}
        for folder, start in ((self.work, ""), (self.base / "tmp", "TMPDIR/")):
            for path in sorted(folder.rglob("*")):
                name = start + str(path.relative_to(folder))
                if path.is_file():
                    data = path.read_bytes()
                    if name in self.scenario.finals:
                        data = self._comparable(data)
                    found[name] = hashlib.sha256(data).hexdigest()
                else:
                    found[name] = "a folder"
        return found

    def _state_without_tempfile(self) -> State:
        return {n: v for n, v in self.state().items() if not re.fullmatch(_OF_TEMPFILE, n)}

    def _comparable(self, data: bytes) -> bytes:
        try:
            return self.scenario.comparable(data)
        except ValueError:  # what was there before, or half of it
            return data

    def failure(self, column: Column, fault: Fault) -> str:
        """What does not hold in one cell; empty: all does."""
        self._reset()
        ran = self._run(fault)
        left = self.state()
        found = [*self._wrong_end(column, fault, ran), *self._wrong_state(column, ran, left)]
        if not found:
            found += self._wrong_rerun(left)
        if not found:
            return ""
        at = f"{self.scenario.name}: {column.name} at {fault.kind} {fault.at} ({self._path(fault)})"
        return f"{at}: {'; '.join(found)}\n    status {ran.status}: {ran.stderr[-1500:]}"

    def _path(self, fault: Fault) -> str:
        """What the call is about, in a run without threads that race."""
        paths = [path for kind, path in self.clean.calls if kind == fault.kind]
        return paths[fault.at - 1]

    def _run(self, fault: Fault | None = None) -> Ran:
        return self.runs(self.base, self.work, self.scenario.arguments, fault)

    def _reset(self) -> None:
        for name in ("work", "tmp"):
            shutil.rmtree(self.base / name, ignore_errors=True)
        shutil.copytree(self.pristine, self.work)
        (self.base / "tmp").mkdir()

    def _state_after_reset(self) -> State:
        self._reset()
        return self.state()

    def _wrong_end(self, column: Column, fault: Fault, ran: Ran) -> Iterator[str]:
        """Status, words, processes."""
        if ran.status not in self._statuses(column, fault, ran):
            yield "the exit status"
        if ran.strays:
            yield f"{ran.strays} processes live on"
        if "Traceback" in ran.stderr:
            yield "a traceback"
        said = self._said(ran)
        if _warns(ran, column):
            said = [line for line in said if not line.startswith("Warning: ")]
        if ran.status == 130:
            if said != ["Interrupted."]:
                yield "not the one line of an interrupt"
        elif column.signal or ran.status == 0:
            if said:
                yield "words that nobody needs"
        elif len(said) != 1 or not said[0].startswith("Error: "):
            yield "not one line"

    def _statuses(self, column: Column, fault: Fault, ran: Ran) -> set[int]:
        if column.signal and ran.struck:
            # At the last calls it may come when all is done. Without a handler the system ends it.
            return {-column.signal} | ({0, 128 + column.signal} if column.signal != 9 else set())
        if not ran.struck:
            return {0}
        return {0, 2, 3} if fault.kind in (*READING, "stat") else {0, 3}

    def _said(self, ran: Ran) -> list[str]:
        usual = self.clean.stderr.splitlines()
        return [
            line
            for line in ran.stderr.splitlines()
            if line not in usual and not any(re.match(note, line) for note in _NOTES)
        ]

    def _wrong_state(self, column: Column, ran: Ran, left: State) -> Iterator[str]:
        """The inputs, the output, and what lies beside it."""
        if _identities(self.base / "inputs") != self._inputs:
            yield "the inputs changed"
        new, old = self.finals_in(self.final), self.finals_in(self.initial)
        found = self.finals_in(left)
        if _warns(ran, column) and self.scenario.finals == ("report.json",) and found != old:
            pass  # a report with less in it, as the warning says
        elif not found and column.is_lasting and self.initial:
            pass  # it lies beside, and the next run puts it in its place
        elif not _is_one_or_other(found, new, old, self.scenario.finals):
            yield f"the output is neither the old nor the new one: {sorted(found)}"
        elif ran.status == 0 and found != new:
            yield "it says that all is well, and the output is not the new one"
        elif ran.status in (2, 3) and found == new != old and "is complete" not in ran.stderr:
            yield "it says that it failed, and the output is there"
        beside = {_outermost(name) for name in {*left} - {*found}}
        allowed = self._may_leave(column, ran)
        if not column.signal or column.signal == signal.SIGKILL:
            allowed = f"{allowed}|{_OF_TEMPFILE}"
        strange = [name for name in beside if not (allowed and re.fullmatch(allowed, name))]
        if strange:
            yield f"left behind: {sorted(strange)[:4]}"

    def _may_leave(self, column: Column, ran: Ran) -> str:
        if ran.status == 0 and not column.is_lasting:
            return ""
        if column.signal == 9 or column.is_lasting:
            return _OF_A_KILL
        return self.scenario.kept_on_signal if column.signal else self.scenario.kept

    def _wrong_rerun(self, left: State) -> Iterator[str]:
        """The same command again, unless it was seen to do well from such a start."""
        start = repr(sorted((_unnumbered(name), value) for name, value in left.items()))
        done = self.finals_in(left) == self.finals_in(self.final)
        if left == self.initial or start in self._good_starts:
            return
        if done and self.scenario.once:
            return
        again = self._run()
        if again.status or "Traceback" in again.stderr:
            yield f"the next run ends with {again.status}: {again.stderr[-600:]!r}"
        elif other := {*self._state_without_tempfile().items()} ^ {*self.final.items()}:
            yield f"the next run gives something else: {sorted({n for n, _ in other})[:4]}"
        else:
            self._good_starts.add(start)


def _warns(ran: Ran, column: Column) -> bool:
    """Whether it went on without what could not be read, and said so."""
    reason = os.strerror(column.number) if column.action == "fail" else ""
    return (
        bool(reason)
        and ran.status == 0
        and re.search(f"Warning: .*{reason}", ran.stderr) is not None
    )


def _is_one_or_other(found: State, new: State, old: State, finals: tuple[str, ...]) -> bool:
    """Whether each of the outputs is the new or the old one, whole."""

    def part(state: State, final: str) -> State:
        return {name: value for name, value in state.items() if name.split("/")[0] == final}

    return all(part(found, name) in (part(new, name), part(old, name)) for name in finals)


def _outermost(name: str) -> str:
    """Of what lies in a hidden folder, that folder."""
    inside = name.removeprefix("TMPDIR/")
    return name[: len(name) - len(inside)] + inside.split("/")[0] if inside[0] == "." else name


def _unnumbered(name: str) -> str:
    """Without the process in a name."""
    return re.sub(r"-\d+-\d+-[0-9a-f]{16}", "-#", name)


def _identities(folder: Path) -> dict[str, tuple[int, ...]]:
    """What any change of a file alters, and what nobody can put back: the time of change."""
    return {
        str(path): (s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_mode, s.st_nlink)
        for path in sorted((folder, *folder.rglob("*")))
        for s in (path.lstat(),)
    }


RowOf = Callable[[Scenario], Row]
