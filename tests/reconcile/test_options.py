"""What options say of a start that its log does not: drafts, adapters, ranks, stages by hand."""

import json

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.plan import plan_model
from headcount.plan.request import PlanRequest
from start_up_lines import reconcile, rows, vllm

_GIB = 2**30
_DRAFT = json.dumps({"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4})
_LOG = vllm(
    *("0.19.0", "Qwen/Qwen3-8B", 40960),
    "INFO Model loading took 15.27 GiB memory",
    "INFO Available KV cache memory: 3.00 GiB",
)
_LLAMA = (
    "llama_model_loader: loaded meta data with 32 key-value pairs and 399 tensors from"
    " /m/Qwen3-8B-Q8_0.gguf (version GGUF V3)\n"
    "llama_context: n_seq_max     = 1\nllama_context: n_ctx         = 32768\n"
    "llama_kv_cache: size = 2448.00 MiB ( 32768 cells,  36 layers,  1/1 seqs)\n"
)


def test_a_draft_that_no_line_names_is_loaded_with_the_model() -> None:
    """8,190,735,360 and 596,049,920 parameters (their cards) of two bytes."""
    assert rows(_LOG)["weights_bytes"]["agrees"] is True
    found = rows(_LOG, "--speculative-config", _DRAFT)["weights_bytes"]
    assert found["agrees"] is False
    assert found["predicted"] == pytest.approx(2 * (8_190_735_360 + 596_049_920), rel=0.005)


def test_stages_by_hand_have_the_layers_that_are_said() -> None:
    """The first of 10 layers has 10/36 of them and the embedding; the least of stages counts."""
    found = rows(_LOG, "--pp", "2", "--pp-layer-partition", "10,26")["weights_bytes"]
    matrix = 151_936 * 4096
    layers = (8_190_735_360 - 2 * matrix) / 36
    assert found["predicted"] == pytest.approx(2 * (10 * layers + matrix), rel=0.005)


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (["--enable-lora", "--max-loras", "4"], {"enable_lora": True, "max_loras": 4}),
        (["--cpu-offload-gb", "4"], {"cpu_offload_gb": 4.0}),
        (["--dp", "2"], {"dp": 2}),
    ],
)
def test_what_options_add_is_in_the_budget(options: list[str], changed: dict[str, object]) -> None:
    request = PlanRequest(
        engine="vllm",
        version=find_engine("vllm").releases.parse("0.19.0"),
        device=find_device("l4"),
        context=40960,
        **changed,  # type: ignore[arg-type]
    )
    plan = plan_model(planned(audit_model("qwen3-8b")), request)
    bare = vllm("0.19.0", "Qwen/Qwen3-8B", 40960, "INFO Available KV cache memory: 3.00 GiB")
    found = rows(bare, "--device", "l4", *options)["available_kv_bytes"]
    assert found["predicted"] == plan.available_bytes


def test_caches_of_two_types_are_said_by_options() -> None:
    """36 layers x 8 heads x 128 elements x 32,768 cells of 34 / 32 B."""
    half = 36 * 8 * 128 * 32768
    assert rows(_LLAMA)["kv_cache_bytes"]["predicted"] == 2 * 2 * half
    types = ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0"]
    found = rows(_LLAMA, *types)["kv_cache_bytes"]
    assert found["predicted"] == 2 * half * 34 // 32
    assert found["agrees"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ep-size", "2"], "vllm has no --ep-size"),
        (["--parallel", "4"], "vllm has no --parallel"),
        (["--max-loras", "4"], "--max-loras needs --enable-lora"),
        (["--speculative-num-steps", "2"], "need --speculative-algorithm"),
        (["--speculative-config", "{"], "--speculative-config is no JSON"),
    ],
)
def test_an_option_that_nothing_heeds_is_refused(options: list[str], words: str) -> None:
    result = reconcile(_LOG, *options)
    assert result.exit_code == 2
    assert words in result.output


def test_an_option_may_complete_what_the_log_says() -> None:
    args = "non-default args: {'model': 'Qwen/Qwen3-8B', 'enable_lora': True}\n"
    assert reconcile(args + _LOG, "--max-loras", "4").exit_code == 0
