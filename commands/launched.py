"""Commands that a launcher has started in several processes at once."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from headcount.running.extra import need_extra
from headcount.running.launched import is_launched
from headcount.running.signals import exit_at_once, on_signals


def in_main_process(command: Callable[..., None]) -> Callable[..., None]:
    """`command` for the main process of a launch, which alone prints and writes; any other does its
    share of the work instead."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        if not is_launched():
            command(*args, **options)
            return
        with on_signals(exit_at_once):
            need_extra()
            from headcount.running.team import joined

            with joined() as team:
                if team.is_main:
                    command(*args, **options)

    return run
