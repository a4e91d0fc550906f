"""What a file leaves out is what its own class takes for it, not DeepSeek's."""

import pytest

pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING

from headcount.arch.rehoming.deepseek import LIKE_LLAMA, misfit, read_old, theta

READ = ("hidden_act", "rms_norm_eps", "bos_token_id", "eos_token_id", "pad_token_id")
OF_GRANITE = (
    *("embedding_multiplier", "residual_multiplier"),
    *("logits_scaling", "attention_multiplier"),
)


@pytest.mark.parametrize("model_type", LIKE_LLAMA)
def test_the_class_says_what_a_file_leaves_out(model_type: str) -> None:
    built = CONFIG_MAPPING[model_type]()
    old = read_old({}, model_type)
    keys = (*READ, *(OF_GRANITE if model_type == "granite" else ()))
    assert {key: old[key] for key in keys} == {key: getattr(built, key) for key in keys}
    assert theta(old) == built.rope_parameters["rope_theta"]
    assert misfit(old) is None


def test_a_file_is_read_before_its_class() -> None:
    assert theta(read_old({"rope_theta": 5e5}, "llama")) == 5e5
    assert theta(read_old({"rope_parameters": {"rope_theta": 7.0}}, "helium")) == 7.0
    assert "gelu" in str(misfit(read_old({"hidden_act": "gelu"}, "llama")))
