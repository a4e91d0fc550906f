"""Every method that the command line offers has rules of its own."""

import pytest

pytest.importorskip("torch")

from headcount.convert.merge.ladder import MERGE_METHODS
from headcount.convert.merge.method_rules import METHOD_RULES
from headcount.convert.merge.methods import HEAD_MAKERS


def test_every_method_of_the_ladder_has_rules() -> None:
    assert tuple(METHOD_RULES) == tuple(HEAD_MAKERS) == MERGE_METHODS
