"""Whether a decode step reads all weights, whatever the config says about experts."""

import pytest

from checkpoints import LLAMA_CONFIG
from headcount.arch.read_config import read_spec
from headcount.plan.decode import unbounded_reason


@pytest.mark.parametrize(
    ("value", "several"),
    [
        *((None, False), (0, False), (1, False), (True, False), ([], False), ([1, 1], False)),
        *((8, True), (8.0, True), ([1, 8], True)),
        *(("", False), ({}, False), ("x", True), ([[]], False), ({"a": 1}, True)),
    ],
)
def test_a_count_of_experts_of_any_type(value: object, several: bool) -> None:
    spec, _ = read_spec(LLAMA_CONFIG, "here")
    reason = unbounded_reason(spec, {**LLAMA_CONFIG, "num_local_experts": value})
    assert reason == ("a step reads only the active experts' weights" if several else None)
