"""What drafts in a start by its log: vLLM's ways to say it, its advice, and what is not known."""

import json

import pytest

from start_up_lines import reconcile, rows, too_long, vllm


def _log(config: str, *lines: str) -> str:
    args = f"non-default args: {{'model': 'Qwen/Qwen3-8B', 'speculative_config': {config}}}"
    return args + "\n" + vllm("0.19.0", "Qwen/Qwen3-8B", 40960, *lines)


@pytest.mark.parametrize(
    ("needed", "said", "commanded"),
    [
        (  # 2 x 8 heads x 128 x 2 B for each of 36 layers of the model, and of 28 of the draft
            "10.00",
            "{'model': 'Qwen/Qwen3-0.6B', 'num_speculative_tokens': 4}",
            {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4},
        ),
        (
            "5.63",
            "{'method': 'ngram', 'num_speculative_tokens': 4, 'prompt_lookup_max': 4}",
            {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4},
        ),
        (
            "5.63",
            "{'model': '/no/such-draft', 'num_speculative_tokens': 4}",
            {"method": "draft_model", "model": "/no/such-draft", "num_speculative_tokens": 4},
        ),
        (
            "5.63",
            "{'method': 'medusa', 'model': 'a/b', 'num_speculative_tokens': 2}",
            {"method": "medusa", "model": "a/b", "num_speculative_tokens": 2},
        ),
    ],
)
def test_advised_commands_speculate_as_logged(
    needed: str, said: str, commanded: dict[str, object]
) -> None:
    lines = ("Available KV cache memory: 3.00 GiB", too_long(40960, needed, "3.00"))
    found = rows(_log(said, *lines), "--device", "l4")
    changes = [row["why"] for name, row in found.items() if name.startswith("change_")]
    assert changes
    for why in changes:
        assert f"--speculative-config '{json.dumps(commanded)}'" in why


def test_a_model_without_a_method_is_a_draft_model() -> None:
    """Weights of Qwen3-8B and Qwen3-0.6B: 8,190,735,360 and 596,049,920 parameters (their cards)
    of two bytes."""
    config = "{'model': 'Qwen/Qwen3-0.6B', 'num_speculative_tokens': 4}"
    log = _log(config, "Model loading took 16.38 GiB memory", "Available KV cache memory: 2.0 GiB")
    found = rows(log, "--device", "l4")["weights_bytes"]
    assert found["agrees"] is True
    assert found["predicted"] == pytest.approx(2 * (8_190_735_360 + 596_049_920), rel=0.005)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ("{'model': 'Qwen/Qwen3-0.6B', 'num_speculative_tokens': 4}", "draft_model): the draft Q"),
        ("{'model': 'Qwen/Qwen3-8B', 'num_speculative_tokens': 4}", "draft_model): the draft Q"),
        ("{'model': 'x/Qwen3-8B_eagle3', 'num_speculative_tokens': 4}", "eagle3): "),
        ("{'method': 'draft_model', 'num_speculative_tokens': 4}", "does not name it"),
        ("{'model': '/no/such-draft', 'num_speculative_tokens': 4}", "not known here"),
        ("{'method': 'draft_model', 'model': '-', 'num_speculative_tokens': 4}", "not name it"),
        ("{'rejection_sample_method': 'standard', 'method': 'ngram',"
         " 'num_speculative_tokens': 4}", "(ngram)"),
    ],
)  # fmt: skip
def test_what_drafts_is_said_or_why_it_is_not_reckoned_with(config: str, note: str) -> None:
    result = reconcile(_log(config, "Available KV cache memory: 3.00 GiB"), "--device", "l4")
    assert "Error" not in result.output
    assert note in " ".join(result.output.split())


def test_a_model_that_predicts_is_its_own_draft() -> None:
    """hf_config_override of vllm/config/speculative.py makes of it a model of MTP."""
    name = "deepseek-ai/DeepSeek-V3"
    args = f"'speculative_config': {{'model': '{name}', 'num_speculative_tokens': 1}}"
    log = args + "\n" + vllm("0.19.0", name, 4096, "Available KV cache memory: 30.00 GiB", tp=8)
    assert "1 tokens (mtp)" in reconcile(log, "--device", "h200").output
