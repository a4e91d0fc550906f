"""The choices of --home are the homes that there are."""

import pytest

pytest.importorskip("torch")

from headcount.convert.homes.finding import HOMES
from headcount.convert.plan.request import HOME_CHOICES


def test_every_home_can_be_chosen() -> None:
    assert (
        "auto",
        *HOMES,
        "latent",
        "mla",
    ) == HOME_CHOICES  # which --latent asks for, and no heads do
