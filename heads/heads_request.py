"""What an atlas of heads is asked for. Light: the command line reads its defaults."""

from dataclasses import dataclass, field
from typing import NamedTuple

from headcount.model.errors import HeadcountError


class Thresholds(NamedTuple):
    """From which excess over uniform attention a head has a role: (score - uniform) / (1 -
    uniform), so that 0 is what attention that looks nowhere in particular scores, and 1 all of it.
    `copying` and `alignment` are held against the score itself, from -1 to 1."""

    previous_token: float = 0.4
    first_token: float = 0.5
    duplicate_token: float = 0.2
    induction: float = 0.2
    alignment: float = 0.7
    copying: float = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadsRequest:
    """Whose heads to look at, on which tokens; None means the default that the comment gives."""

    model: str  # a folder or a model of the Hub
    tokens: int | None = None  # random tokens, which are then repeated; None: up to 64
    sequences: int = 16
    batch_size: int = 4
    seed: int = 0
    dtype: str | None = None  # None: the checkpoint's
    device: str | None = None  # None: cuda where there is one, else cpu
    thresholds: Thresholds = field(default=Thresholds())


def parse_thresholds(text: str | None) -> Thresholds:
    """`NAME=VALUE,…` over the defaults. Raises HeadcountError."""
    given: dict[str, float] = {}
    for part in filter(None, (text or "").split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in Thresholds._fields:
            known = ", ".join(Thresholds._fields)
            raise HeadcountError(f"--thresholds: no role is called {name!r}; there are {known}")
        given[name] = _share(name, value)
    return Thresholds(**given)


def _share(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value <= 1:
        raise HeadcountError(f"--thresholds: {name}={text}: give a number above 0, at most 1")
    return value
