"""What uptraining adds to the errors of `headcount.model.errors`."""

from headcount.model.errors import HeadcountError


class TrainingFailedError(HeadcountError):
    """A loss that is not a finite number. Exit code 1."""

    exit_code = 1


class OtherProcessError(HeadcountError):
    """What went wrong in another process of the same run."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
