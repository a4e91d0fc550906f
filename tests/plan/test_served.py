"""Weights of models whose files hold something else than their class builds."""

import json
from pathlib import Path

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.options.speculation import Speculation
from headcount.plan.plan import Plan, plan_model
from headcount.plan.report.notes import warnings
from headcount.plan.request import PlanRequest

# Published: https://huggingface.co/mistralai/Mistral-Small-3.1-24B-Instruct-2503
MISTRAL_SMALL_31 = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    **{"model_type": "mistral3", "spatial_merge_size": 2, "dtype": "bfloat16"},
    **{"multimodal_projector_bias": False, "image_token_index": 10},
    "text_config": {
        **{"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768},
        **{"num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8},
        **{"head_dim": 128, "vocab_size": 131072, "max_position_embeddings": 131072},
    },
    "vision_config": {
        **{"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096},
        **{"num_hidden_layers": 24, "num_attention_heads": 16, "head_dim": 64},
        **{"image_size": 1540, "patch_size": 14, "num_channels": 3},
    },
}
HELD, BUILT = 24_011_361_280, 23_340_272_640  # of its files; tied, as its class has it by default


def plan(name: str, engine: str, **asked: object) -> Plan:
    request = PlanRequest(engine=engine, device=find_device("h200"), context=8192, **asked)  # type: ignore[arg-type]
    return plan_model(planned(audit_model(name)), request)


def folder(tmp_path: Path, **changed: object) -> str:
    (tmp_path / "config.json").write_text(json.dumps({**MISTRAL_SMALL_31, **changed}))
    return str(tmp_path)


@pytest.mark.parametrize("engine", ["generic", "vllm", "sglang", "llama.cpp", "transformers"])
def test_a_head_that_a_default_alone_ties_is_stored(tmp_path: Path, engine: str) -> None:
    found = plan(folder(tmp_path), engine)
    assert audit_model(str(tmp_path)).spec.parameters == BUILT
    assert (found.weights and found.weights.total_bytes) == 2 * HELD
    assert any("671,088,640 parameters of an output head" in text for text in warnings(found))


def test_what_a_file_says_of_its_head_is_believed(tmp_path: Path) -> None:
    tied = plan(folder(tmp_path, tie_word_embeddings=True), "vllm")
    assert (tied.weights and tied.weights.total_bytes) == 2 * BUILT
    text = {**MISTRAL_SMALL_31["text_config"], "tie_word_embeddings": True}  # type: ignore[dict-item]
    tied = plan(folder(tmp_path, text_config=text), "vllm")
    assert (tied.weights and tied.weights.total_bytes) == 2 * BUILT


def test_layers_that_predict_are_loaded_for_drafts_alone() -> None:
    """MiMoMultiTokenPredictorLayer of vLLM's mimo_mtp.py: a layer of Qwen2's shape, a matrix that
    joins two hidden states, three norms more."""
    attention = 4096 * (4096 + 2 * 1024) + (4096 + 2 * 1024) + 4096 * 4096
    ahead = attention + 3 * 4096 * 11008 + 2 * 4096**2 + 5 * 4096
    whole = 7_833_409_536
    for engine, parameters in (("vllm", whole - ahead), ("sglang", whole - ahead)):
        found = plan("mimo-7b", engine)
        assert (found.weights and found.weights.total_bytes) == 2 * parameters
    built = plan("mimo-7b", "generic")
    assert (built.weights and built.weights.total_bytes) == 2 * whole
    drafts = Speculation(method="mtp", tokens=1)
    with_mtp = plan("mimo-7b", "vllm", speculative_config=drafts)
    (term,) = (term for term in with_mtp.budgets[0].fixed if term.key == "draft")
    assert term.bytes == 2 * ahead
    assert with_mtp.bytes_per_token == plan("mimo-7b", "vllm").bytes_per_token * 37 // 36


def test_a_measured_start_has_the_head(tmp_path: Path) -> None:
    """Mistral-Small-3.1-24B-Instruct-2503 with vLLM 0.19 on an H100 of 80 GB at 0.95: 44.76 GiB of
    weights and 28.19 GiB for the cache were logged. No constant was fitted on it."""
    request = PlanRequest(
        engine="vllm",
        version=find_engine("vllm").releases.parse("0.19.0"),
        device=find_device("h100"),
        utilisation=0.95,
        context=8192,
    )
    found = plan_model(planned(audit_model(folder(tmp_path))), request)
    (weights,) = (term for term in found.budgets[0].fixed if term.key == "weights")
    assert weights.bytes / 2**30 == pytest.approx(44.76, abs=0.006)
    assert found.available_bytes / 2**30 == pytest.approx(28.19, abs=0.05)
