"""All parameters of every type that has a row, against the models that transformers builds: more
random configs than the record (tests/audit/test_truth.py) has."""

import importlib

import pytest

from headcount.arch.read_config import read_config
from truth_record import key_of, recorded

pytestmark = [pytest.mark.needs_convert, pytest.mark.slow]


@pytest.mark.parametrize("model_type", dict.fromkeys(map(key_of, recorded("totals"))))
def test_six_configs(model_type: str) -> None:
    configs = importlib.import_module("total_configs")
    for _, config, model in configs.models(model_type, 6):
        reading = read_config(config, "config")
        built = sum(parameter.numel() for parameter in model.parameters())
        assert reading.total() == (built, None), config
        idle = configs.experts_not_visited(model)
        if idle is not None:
            assert reading.idle_parameters() == idle, config
