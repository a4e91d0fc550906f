"""What the importance of heads is asked for. Light: the command line reads its defaults."""

from dataclasses import dataclass

from headcount.running.asked_for import BUILTIN


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportanceRequest:
    """Whose heads, on which text: a UTF-8 file, or `builtin`, of which at most `max_tokens` are
    read, in rows that `seed` shuffles. `exact`: also what each head costs alone, a pass a head.
    `device` is cpu or cuda; None: cuda where there is one."""

    model: str  # a folder or a model of the Hub
    text: str = BUILTIN
    max_tokens: int = 8192
    seed: int = 0
    exact: bool = False
    device: str | None = None
