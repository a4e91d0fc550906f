"""What can go wrong between processes that share work."""

from headcount.model.errors import HeadcountError


class OtherProcessError(HeadcountError):
    """What went wrong in another process of the same run."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.args[0], self.exit_code)


class LostProcessError(HeadcountError):
    """A process that ended without a word. Exit code 1."""

    exit_code = 1
