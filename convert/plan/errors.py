"""What a conversion adds to the errors of `headcount.model.errors`."""

from headcount.model.errors import HeadcountError, UnsupportedModelError


class CannotConvertError(UnsupportedModelError):
    """A model, or a tensor of it, that cannot be converted exactly as asked."""


class NoSuchHomeError(CannotConvertError):
    """A home that is none for this type at all: another one's reason tells more."""


class HeadCountError(HeadcountError):
    """A number of K/V heads that the model's heads cannot be pooled to."""


class TargetError(HeadcountError):
    """A target folder that may not be written: it exists, or lies inside the source."""


class BadValuesError(HeadcountError):
    """NaN or infinity in what is to be pooled, or in the result."""


class SelfCheckError(HeadcountError):
    """An output that does not pass its own audit: a fault of this program, or of the disk."""


class CheckFailedError(HeadcountError):
    """A finished output that does not do what it should on a few tokens: exit code 1."""

    exit_code = 1
