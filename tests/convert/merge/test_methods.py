"""Every method that the command line offers has rules of its own."""

import pytest

pytest.importorskip("torch")

from headcount.convert.merge.ladder import MERGE_METHODS
from headcount.convert.merge.methods import METHOD_RULES


def test_every_method_of_the_ladder_has_rules() -> None:
    assert tuple(METHOD_RULES) == MERGE_METHODS
