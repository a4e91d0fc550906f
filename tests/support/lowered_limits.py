"""A limit made small, so that a test reaches it with a small input."""

from collections.abc import Callable

import pytest

from headcount.model import limits

Lower = Callable[[str, float], None]


@pytest.fixture
def lower(monkeypatch: pytest.MonkeyPatch) -> Lower:
    """`lower("LAYERS", 3)`, for one test."""

    def change(name: str, most: float) -> None:
        limit: limits.Limit = getattr(limits, name)
        assert most < limit.most
        monkeypatch.setattr(limits, name, limit._replace(most=most))

    return change
