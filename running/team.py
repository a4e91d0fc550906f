"""The processes of a launcher, of which the main one runs the command and the others help.

A helper waits for jobs: functions that run in all processes at once, each doing its share. Where
processes wait for each other all of them say a word: that all is well, that one has failed, or, the
main one, which job comes next. So none waits for one that has failed, and all go on alike.
"""

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from headcount.model.errors import HeadcountError

from .errors import LostProcessError, OtherProcessError
from .signals import SIGNALLED
from .wire import broadcast, received, send

Item = TypeVar("Item")
Value = TypeVar("Value")
# Helpers wait while the main process writes, or trains a layer.
_PATIENCE = timedelta(days=30)
_OF_GLOO = ("gloo", "Connection closed by peer", "Connection reset by peer")


@dataclass(frozen=True, slots=True)
class Job:
    """What helpers run: a function of a module, and what it is given beside the team."""

    act: Callable[..., object]
    given: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: HeadcountError


@dataclass(frozen=True, slots=True)
class _End:
    """The command is done."""


class _Abandoned(Exception):
    """Another process has left the job; `word` is what the main one said."""

    def __init__(self, word: object) -> None:
        super().__init__()
        self.word = word


class Team:
    """This process among the `count` of a launch; by itself it does everything."""

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self.index, self.count = index, count
        self._job: Job | None = None  # that is shared now
        self._apart = False  # it has left the others in the middle of what torch does with all

    @property
    def is_main(self) -> bool:
        return self.index == 0

    def from_main(self, act: Callable[[], Value]) -> Value:
        """What `act` gives in the main process, where alone it is called."""
        return self.from_one(0, act)

    def from_one(self, index: int, act: Callable[[], Value]) -> Value:
        """What `act` gives in the process `index`, where alone it is called, in all of them."""
        if self.count == 1:
            return act()
        value = act() if self.index == index else None
        self._meet()
        found: Value = _lost(lambda: broadcast(value, source=index))
        return found

    def together(self, act: Callable[[], Value]) -> Value:
        """What `act` gives in each process, once it has given it in all."""
        value = act()
        if self.count > 1:
            self._meet()
        return value

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Inside, processes meet in what torch does with all of them, where none can say a word:
        one that fails there leaves, and the others find it gone. All that fails in all of them
        alike belongs outside."""
        try:
            yield
        except BaseException as error:
            self._apart = self.count > 1
            if self._apart and _is_lost(error):
                raise _lost_process(error) from error
            raise

    def each(
        self,
        items: Sequence[Item],
        owner: Callable[[Item], int],
        make: Callable[[Item], Iterable[Tensor]],
        take: Callable[[Item, Iterator[Tensor]], None],
    ) -> None:
        """For every item `make` in the process that is its `owner`, and `take` of what it gave in
        the main one: in the order of the items, so that sums do not depend on who made what."""
        for turn in _turns(items, owner):
            own = [item for item in turn if owner(item) == self.index]
            made = make(own[0]) if own else ()
            if not self.is_main:
                made = list(made)
            for item in turn:
                self._hand_over(item, owner(item), made, take)

    def _hand_over(
        self,
        item: Item,
        owner: int,
        made: Iterable[Tensor],
        take: Callable[[Item, Iterator[Tensor]], None],
    ) -> None:
        if owner == 0:
            if self.is_main:
                take(item, iter(made))
            return
        self._meet()
        if self.index == owner:
            _lost(lambda: send(made, to=0))
        if self.is_main:
            parts = _receiving(owner)
            try:
                take(item, parts)
            finally:
                for _ in parts:  # what is sent has to be taken
                    pass

    @contextmanager
    def sharing(self, job: Job) -> Iterator[None]:
        """The main process runs inside what helpers run as `job`."""
        if self.count == 1:
            yield
            return
        self._meet(job)
        self._job = job
        try:
            yield
            self._meet()
        except SIGNALLED:
            self._job = None
            raise
        except BaseException as error:
            if self._job is job:
                self._leave(error)
            raise
        finally:
            if self._job is job:
                self._job = None

    def _leave(self, error: BaseException) -> None:
        """Tells the helpers that the main process is out of the job."""
        with suppress(LostProcessError):
            self._say(_Failed(_portable(error, self.index)))

    def serve(self) -> None:
        """Helps until the command is done."""
        word: object = None
        while not isinstance(word, _End):
            if not isinstance(word, Job):
                word = _order(self._say(None))
                continue
            word = self._helped(word)

    def _helped(self, job: Job) -> object:
        """Does a job; the word of the main process that came in its place, if one did."""
        try:
            job.act(self, *job.given)
            self._meet()
        except _Abandoned as left:
            return left.word
        except LostProcessError:
            raise
        except Exception as error:
            if self._apart:
                print(f"Error: {_said(error, self.index)}", file=sys.stderr)
                raise SystemExit(_exit_code(error)) from error
            return _order(self._say(_Failed(_portable(error, self.index))))
        return None

    def _meet(self, word: object = None) -> None:
        """Waits for the others. Raises what has failed in one of them."""
        words = self._say(word)
        failed = next((w for w in words if isinstance(w, _Failed)), None)
        if self.is_main:
            if failed is not None:
                self._job = None  # everybody knows
                raise failed.error
        elif failed is not None or words[0] is not None:
            raise _Abandoned(_order(words))

    def _say(self, word: object) -> list[object]:
        if self._apart:
            raise LostProcessError("this process has left the others")
        words: list[object] = [None] * self.count
        _lost(lambda: dist.all_gather_object(words, word))
        return words

    def close(self) -> None:
        """Lets the helpers go."""
        self._job = None
        if self.count > 1 and self.is_main:
            with suppress(LostProcessError):
                self._say(_End())


_ALONE = Team()
_joined: list[Team] = []


def this_team() -> Team:
    """That of this process."""
    return _joined[-1] if _joined else _ALONE


@contextmanager
def joined() -> Iterator[Team]:
    """The processes that were launched, as one team inside. A helper has helped by then."""
    _lost(lambda: dist.init_process_group(_backend(), timeout=_PATIENCE))
    team = Team(dist.get_rank(), dist.get_world_size())
    _joined.append(team)
    try:
        if not team.is_main:
            team.serve()
        yield team
    except SIGNALLED:
        raise
    except LostProcessError as error:
        if team.is_main:
            raise
        raise SystemExit(1) from error  # who has failed says what
    except BaseException:
        team.close()
        raise
    else:
        team.close()
    finally:
        _joined.remove(team)
    dist.destroy_process_group()


def _backend() -> str:
    """Words and what lies on CPUs go through gloo, what lies on GPUs through NCCL."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return "gloo"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    return "cpu:gloo,cuda:nccl"


def _order(words: Sequence[object]) -> object:
    """What the main process wants next; None where it, or another, has failed."""
    if isinstance(words[0], _End):
        return words[0]
    failed = any(isinstance(word, _Failed) for word in words)
    return None if failed else words[0]


def _turns(items: Iterable[Item], owner: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Runs of items that belong to different processes."""
    turn: list[Item] = []
    for item in items:
        if owner(item) in {owner(other) for other in turn}:
            yield turn
            turn = []
        turn.append(item)
    if turn:
        yield turn


def _receiving(source: int) -> Iterator[Tensor]:
    parts = received(source)
    while True:
        tensor = _lost(lambda: next(parts, None))
        if tensor is None:
            return
        yield tensor


def _lost(act: Callable[[], Value]) -> Value:
    """What `act` gives; torch's error for a process that is gone becomes ours."""
    try:
        return act()
    except RuntimeError as error:
        raise _lost_process(error) from error


def _lost_process(error: BaseException) -> LostProcessError:
    said = str(error).partition("\n")[0]
    return LostProcessError(f"a process of this launch is gone, or out of reach: {said}")


def _is_lost(error: BaseException | None) -> bool:
    """Whether torch says, here or where this error is from, that it does not reach a process."""
    while error is not None:
        if isinstance(error, dist.DistError) or (
            isinstance(error, RuntimeError) and any(word in str(error) for word in _OF_GLOO)
        ):
            return True
        error = error.__cause__
    return False


def _portable(error: BaseException, index: int) -> HeadcountError:
    """`error` as another process can raise it."""
    if isinstance(error, HeadcountError):
        with suppress(Exception):
            again = pickle.loads(pickle.dumps(error))
            if type(again) is type(error) and str(again) == str(error):
                return error
    return OtherProcessError(_said(error, index), _exit_code(error))


def _said(error: BaseException, index: int) -> str:
    kind = "" if isinstance(error, HeadcountError) else f"{type(error).__name__}: "
    return f"process {index}: {kind}{error}"


def _exit_code(error: BaseException) -> int:
    return error.exit_code if isinstance(error, HeadcountError) else 1
