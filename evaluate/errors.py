"""What an evaluation adds to the errors of `headcount.model.errors`."""

from headcount.model.errors import HeadcountError


class EvaluationFailedError(HeadcountError):
    """A model that runs, but whose loss or divergence is not a finite number. Exit code 1."""

    exit_code = 1


class IncomparableModelsError(HeadcountError):
    """Two models whose predictions cannot be compared token by token."""
