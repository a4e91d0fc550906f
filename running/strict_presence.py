"""Libraries ask os.path whether a file is there, and take a disk that fails for a no."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.sources.presence import mode_of

from .replaced import replaced

Question = Callable[[Any], bool]
_KINDS: dict[str, Callable[[int], bool]] = {
    "exists": lambda mode: True,
    "isfile": stat.S_ISREG,
    "isdir": stat.S_ISDIR,
}


@contextmanager
def strict_presence() -> Iterator[None]:
    """Raises HeadcountError if os.path.exists, isfile or isdir could not tell inside, whatever was
    made of that: a tokenizer of which a file is left out counts other tokens, without a word."""
    failures: list[HeadcountError] = []
    try:
        with ExitStack() as stack:
            for name, is_kind in _KINDS.items():
                strict = _strict(getattr(os.path, name), is_kind, failures)
                stack.enter_context(replaced(os.path, name, strict))
            yield
    except Exception:
        if failures:
            raise failures[0] from failures[0].__cause__
        raise
    if failures:
        raise failures[0]


def _strict(
    plain: Question, is_kind: Callable[[int], bool], failures: list[HeadcountError]
) -> Question:
    def answer(path: Any) -> bool:
        if isinstance(path, int):
            return plain(path)
        try:
            mode = mode_of(Path(os.fsdecode(path)))
        except ValueError:  # no name of a file at all
            return False
        except HeadcountError as error:
            failures.append(error)
            return False
        return mode is not None and is_kind(mode)

    return answer
