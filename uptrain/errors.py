"""What uptraining adds to the errors of `headcount.model.errors`."""

from headcount.model.errors import HeadcountError


class TrainingFailedError(HeadcountError):
    """A loss that is not a finite number. Exit code 1."""

    exit_code = 1
