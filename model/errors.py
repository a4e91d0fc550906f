"""The errors a user can cause or meet. Each says what was found, where, and what to do."""

import os

from . import limits
from .redaction import redacted
from .text import printable


def short(value: object) -> str:
    """`value` as Python writes it, at most about 120 characters: input is a stranger's."""
    text = repr(value)
    most = limits.VALUE_CHARACTERS.most
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def bounded(message: str) -> str:
    """`message` as it may be shown, whatever a stranger's input it quotes: each line of at most
    about 1,000 characters, and control characters as escapes."""
    return "\n".join(_bounded_line(line) for line in message.split("\n"))


def _bounded_line(line: str) -> str:
    most = limits.LINE_CHARACTERS.most
    if len(line) > most:
        line = f"{line[:most]}… ({len(line):,} characters)"
    return printable(line)


class HeadcountError(Exception):
    """Wrong use or unreadable input: one or two lines for the user, exit code 2.

    Its text is bounded and without secrets here, so that no message has to see to it.
    """

    exit_code = 2

    def __str__(self) -> str:
        return bounded(redacted(super().__str__()))


class UnknownModelError(HeadcountError):
    """A name that is neither a catalogue alias nor a path nor a Hub id."""


class UnsupportedModelError(HeadcountError):
    """A model that was read but that the asked-for work cannot be done on."""


class InvalidConfigError(HeadcountError):
    """A config.json that is not JSON, or that holds an impossible value."""


class InvalidWeightsError(HeadcountError):
    """A safetensors file or index that breaks the format."""


class SourceChangedError(HeadcountError):
    """A file that changed while it was in use: what was read of it does not belong together."""


class MissingExtraError(HeadcountError):
    """A command, or an option, that needs an extra which is not installed."""


class WriteError(HeadcountError):
    """An I/O failure while writing: disk full, read-only, quota. Exit code 3."""

    exit_code = 3


def of_system(error: OSError) -> HeadcountError:
    """A failure of the machine that nothing nearer to it has explained."""
    reason = error.strerror or str(error) or type(error).__name__
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return HeadcountError(f"{where}cannot be read or written: {reason}")
