"""All parameters of every type that has a row, against the models that transformers builds: more
random configs than the record (tests/audit/test_truth.py) has."""

import importlib

import pytest

from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError
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


# Values that a class builds a model of and cannot run, or that contradict what they are derived of;
# and room for zero experts, which transformers makes and no file has (arch/decoders/deepseek.py).
NOT_RUN = {
    ("longcat_flash", "zero_expert_num"),
    *(("esmc", "head_dim"), ("longcat_flash", "qk_head_dim"), ("xlstm", "embedding_dim")),
    *(("xlstm", "hidden_size"), ("xlstm", "num_heads"), ("marian", "decoder_vocab_size")),
    *((name, "attention_hidden_size") for name in ("zamba", "zamba2")),
    *(("helium", key) for key in ("head_dim", "hidden_size", "num_attention_heads")),
    ("bigbird_pegasus", "is_encoder_decoder"),
}


@pytest.mark.parametrize("model_type", dict.fromkeys(map(key_of, recorded("totals"))))
def test_each_key_of_a_config_alone(model_type: str) -> None:
    """A total that is given is right; a value that is refused cannot be run, mostly."""
    changed = importlib.import_module("one_key").one_key_changed
    wrong = []
    for key, config, built in changed(model_type):
        try:
            known = read_config(config, "config").total()[0]
        except HeadcountError:
            continue
        if known != built and (model_type, key) not in NOT_RUN:
            wrong.append((key, known, built))
    assert wrong == []
