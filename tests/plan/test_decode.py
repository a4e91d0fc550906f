"""Whether a decode step reads all weights, whatever the config says about experts."""

import json
from pathlib import Path

import pytest

from checkpoints import LLAMA_CONFIG
from config_specs import read_spec
from headcount.arch.config_parts import has_experts
from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.decode import unbounded_reason
from headcount.plan.planned_model import PlannedModel


@pytest.mark.parametrize(
    ("value", "several"),
    [
        *((None, False), (0, False), (1, False), (True, False), ([], False), ([1, 1], False)),
        *((8, True), (8.0, True), ([1, 8], True)),
        *(("", False), ({}, False), ("x", True), ([[]], False), ({"a": 1}, True)),
    ],
)
def test_a_count_of_experts_of_any_type(value: object, several: bool) -> None:
    spec = read_spec(LLAMA_CONFIG, "here")
    config = {**LLAMA_CONFIG, "num_local_experts": value}
    reason = unbounded_reason(PlannedModel(model_id="here", spec=spec, config=config))
    assert reason == ("a step reads only the active experts' weights" if several else None)


@pytest.mark.parametrize(
    ("changes", "several"),
    [
        ({"model_type": "mixtral"}, True),  # 8 by its class
        ({"model_type": "granitemoehybrid", "num_local_experts": 0, "mamba_n_heads": 8}, False),
        ({"model_type": "doge", "num_experts": 64, "is_moe": False}, False),
    ],
)
def test_experts_of_an_audited_model(
    changes: dict[str, object], several: bool, tmp_path: Path
) -> None:
    """By what its type makes of the config, not by its name or a key alone."""
    (tmp_path / "config.json").write_text(
        json.dumps({**LLAMA_CONFIG, "architectures": None, **changes})
    )
    reason = unbounded_reason(planned(audit_model(str(tmp_path))))
    assert reason == ("a step reads only the active experts' weights" if several else None)


@pytest.mark.parametrize("model_type", ["mixtral", "qwen3_omni_moe_thinker"])
def test_experts_that_only_the_class_states(model_type: str) -> None:
    assert has_experts({}, model_type)
    assert has_experts({"thinker_config": {"model_type": model_type}}, "llava")
    assert not has_experts({}, "llama")
