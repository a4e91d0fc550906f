"""The columns of the table: what can go wrong, and at which kinds of calls."""

import errno
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .faulty_runs import Fault

READING = ("open", "read", "list")
CHANGING = (
    *("create", "write", "copy", "fsync", "rename", "mkdir", "link", "unlink", "rmdir"),
    *("truncate", "chmod"),
)
# What takes space, and so fails on a full disk; renames and removals do not.
_TAKING = ("create", "write", "copy", "fsync", "mkdir", "link", "truncate")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A fault for each call of `kinds`; of those that `take_turns`, for every third, and where runs
    are `costly`, of those that `spare` too."""

    name: str
    kinds: tuple[str, ...]
    action: str
    number: int = 0
    failing: tuple[str, ...] = ()
    take_turns: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    turn: int = 0

    def cells(self, counts: Mapping[str, int], *, costly: bool) -> Iterator[Fault]:
        """One for each call of a run that makes `counts` calls of each kind."""
        in_turns = {*self.take_turns, *(self.spare if costly else ())}
        for kind in (*self.kinds, *self.take_turns):
            for at in range(1, counts[kind] + 1):
                if kind not in in_turns or at % len(_STOPS) == self.turn:
                    yield self.fault(kind, at)

    def fault(self, kind: str, at: int) -> Fault:
        return Fault(kind=kind, at=at, action=self.action, number=self.number, failing=self.failing)

    @property
    def signal(self) -> int:
        """The signal that is sent; 0: none."""
        return self.number if self.action == "signal" else 0

    @property
    def is_lasting(self) -> bool:
        """Whether what was done cannot be undone, either."""
        return "rename" in self.failing


def _fails(number: int, kinds: tuple[str, ...], failing: tuple[str, ...] = ()) -> Column:
    return Column(
        name=errno.errorcode[number] + (" from there on" if failing else ""),
        kinds=kinds,
        action="fail from here on" if failing else "fail",
        number=number,
        failing=failing,
    )


def _stops(turn: int, number: int) -> Column:
    """At every call that changes the disk; at those that read, the three take turns."""
    return Column(
        name=signal.Signals(number).name,
        kinds=CHANGING,
        action="signal",
        number=number,
        take_turns=READING,
        turn=turn,
    )


COLUMNS = (
    _fails(errno.EIO, (*READING, "stat", *CHANGING)),
    _fails(errno.ENOSPC, _TAKING, _TAKING),  # a full disk stays full
    _fails(errno.EDQUOT, CHANGING),
    _fails(errno.EIO, ("rename",), ("rename",)),
    _fails(errno.EROFS, CHANGING, CHANGING),  # what the kernel does after errors: remount it so
    replace(_fails(errno.EINTR, (*READING, *CHANGING)), spare=READING, turn=1),
    Column(name="short", kinds=("read", "write", "copy"), action="shorten", spare=READING, turn=2),
    *(_stops(turn, number) for turn, number in enumerate(_STOPS)),
    # What it leaves on the disk is the same at a call that reads as at the next that does not.
    Column(name="SIGKILL", kinds=CHANGING, action="signal", number=signal.SIGKILL),
)
