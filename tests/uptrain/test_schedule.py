"""Phases: what learns in which steps, and how fast."""

import math

import pytest

from causal_models import build_model
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert


def test_phases_share_the_steps() -> None:
    from headcount.uptrain.schedule import phases

    both = phases(100, 0.3)
    assert [(p.first, p.stop, p.everything) for p in both] == [(0, 30, False), (30, 100, True)]
    assert [p.everything for p in phases(10, 0.0)] == [True]
    assert [p.everything for p in phases(10, 1.0)] == [False]


@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_the_rate_rises_at_each_phase_and_decays_over_all_steps(decay: str) -> None:
    from headcount.uptrain.schedule import LearningRate, phases

    rate = LearningRate(peak=2.0, steps=100, warmup=4, decay=decay)  # type: ignore[arg-type]
    one, two = phases(100, 0.5)
    assert rate.at(0, one) == pytest.approx(2 / 5)
    assert rate.at(4, one) > rate.at(20, one) > rate.at(49, one)
    assert rate.at(50, two) == pytest.approx(2 / 5 / 2)  # half of it is left by now
    whole = 2 * (1 + math.cos(math.pi * 0.75)) / 2 if decay == "cosine" else 2 * 0.25
    assert rate.at(75, two) == pytest.approx(whole)
    assert 0 < rate.at(99, two) < 0.03


@pytest.mark.parametrize(
    ("name", "learns", "rests"),
    [
        (
            "llama",
            {"q_proj.weight", "o_proj.weight", "input_layernorm.weight", "model.norm.weight"},
            {"embed_tokens.weight", "lm_head.weight", "up_proj.weight"},
        ),
        (
            "gpt2",
            {"c_attn.weight", "c_attn.bias", "attn.c_proj.weight", "ln_1.bias", "ln_f.weight"},
            {"wte.weight", "wpe.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"},
        ),
        ("opt", {"k_proj.bias", "final_layer_norm.weight"}, {"fc1.weight", "embed_tokens.weight"}),
    ],
)
def test_attention_and_norms_learn_first(name: str, learns: set[str], rests: set[str]) -> None:
    from headcount.uptrain.schedule import choose_trainable, phases

    model = build_model(name)
    one, two = phases(2, 0.5)
    count = choose_trainable(model, one)
    by_name = {name: p.requires_grad for name, p in model.named_parameters()}
    for end in learns | rests:
        found = {learning for full, learning in by_name.items() if full.endswith(end)}
        assert found == {end in learns}, end
    assert count == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert choose_trainable(model, two) == sum(p.numel() for p in model.parameters())


def test_a_model_without_attention_is_refused() -> None:
    from torch import nn

    from headcount.uptrain.schedule import choose_trainable, phases

    with pytest.raises(HeadcountError, match="--phase-one 0"):
        choose_trainable(nn.Sequential(nn.Linear(2, 2)), phases(2, 0.5)[0])
