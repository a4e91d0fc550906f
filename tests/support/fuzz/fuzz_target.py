"""A parser under test, and the one place that says which errors may leave it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import click

from headcount.model.errors import HeadcountError

Parser = Callable[[bytes], object]
Mutator = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, kw_only=True)
class Target:
    """`parse` is given any bytes. `seeds` makes the inputs that others come of, `mutate` another
    input of one, `words` are what its format is made of."""

    name: str
    parse: Parser
    seeds: Callable[[], list[bytes]]
    mutate: Mutator
    words: tuple[bytes, ...] = ()


def check(target: Target, data: bytes) -> None:
    """Parses `data`. Whatever a stranger wrote, a parser answers, or raises one of our errors or of
    click's, with a text. Any other exception is a finding, and leaves this function."""
    try:
        target.parse(data)
    except HeadcountError as error:
        assert str(error).strip(), "an error without a text"
        assert error.exit_code in (2, 3)
    except click.ClickException as error:
        assert error.format_message().strip(), "an error without a text"
    except (SystemExit, click.exceptions.Exit) as end:
        code = end.code if isinstance(end, SystemExit) else end.exit_code
        assert code in (0, 1, 2, 3), f"exit status {code!r}"
