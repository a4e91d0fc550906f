"""What ranks log, and the engine's own account of its memory in a log."""

from headcount.plan.engines.start_log import Rank
from headcount.plan.reconcile.log import log_of_lines
from start_up_lines import rows, vllm

GIB = 2**30


def settings(*lines: str) -> dict[str, object]:
    return dict(log_of_lines(lines).settings)


def test_stages_are_told_apart() -> None:
    """Qwen3-32B: 32 of 64 layers on each stage, 4 of 8 heads on each rank. The second stage has
    less memory and decides: 16.02 GiB / (32 x 4 x 2 x 128 x 2 x 16) = 8,202 blocks."""
    log = vllm(
        *("0.10.2", "Qwen/Qwen3-32B", 40960),
        "(Worker_PP0_TP0 pid=1) INFO Available KV cache memory: 18.22 GiB",
        "(Worker_PP0_TP1 pid=2) INFO Available KV cache memory: 18.20 GiB",
        "(Worker_PP1_TP0 pid=3) INFO Available KV cache memory: 16.02 GiB",
        "(Worker_PP1_TP1 pid=4) INFO Available KV cache memory: 16.05 GiB",
        "(EngineCore_0) INFO GPU KV cache size: 131,232 tokens",
        tp=2,
        more=", pipeline_parallel_size=2",
    )
    row = rows(log)["kv_tokens"]
    blocks = int(16.02 * GIB) // (32 * 4 * 2 * 128 * 2 * 16)
    assert row["predicted"] == blocks * 16
    assert "18.2 and 16.02 GiB of stages 0, 1" in row["why"]


def test_places_among_all_ranks_are_stages_too() -> None:
    lines = ["(VllmWorker rank=3 pid=9) INFO Available KV cache memory: 5.00 GiB"]
    assert log_of_lines(lines).ranks == {Rank(place=3): {"available_gib": 5.0}}


def test_a_stage_that_logs_nothing_leaves_the_counts_open() -> None:
    log = vllm(
        *("0.16.0", "Qwen/Qwen3-32B", 40960),
        "(Worker_PP0_TP0 pid=1) INFO Available KV cache memory: 18.22 GiB",
        "(EngineCore_0) INFO GPU KV cache size: 100,000 tokens",
        more=", pipeline_parallel_size=2",
    )
    row = rows(log)["kv_tokens"]
    assert row["agrees"] is None and "other stages" in row["why"]


def test_the_terms_of_the_log_stand_in_place_of_estimates() -> None:
    """0.9 x 79.19 = 71.27 GiB; since 0.27 what is consumed and the peak, in which graphs are."""
    older = (
        "INFO Free memory on device (78.7/79.19 GiB) on startup. Desired GPU memory utilization is"
        " (0.9, 71.27 GiB). Actual usage is 15.27 GiB for weight, 1.40 GiB for peak activation,"
        " 0.13 GiB for non-torch memory, and 0.50 GiB for CUDAGraph memory. Current kv cache memory"
        " in use is 54.47 GiB."
    )
    row = rows(vllm("0.11.0", "Qwen/Qwen3-8B", 40960, older))["available_kv_bytes"]
    assert row["agrees"] is True
    assert row["predicted"] == round((71.27 - 15.27 - 1.40 - 0.13) * GIB)
    newer = (
        "INFO Free memory on device (78.7/79.19 GiB) on startup. Desired GPU memory utilization is"
        " (0.9, 71.27 GiB). Actual usage is 15.60 GiB for consumed memory (weights + non-torch),"
        " 1.90 GiB for peak activation, and 0.45 GiB for CUDAGraph memory. Current kv cache memory"
        " in use is 53.77 GiB."
    )
    row = rows(vllm("0.28.0", "Qwen/Qwen3-8B", 40960, newer))["available_kv_bytes"]
    assert row["agrees"] is True and "71.27 - 15.6 - 1.9" in row["why"]
    wrong = newer.replace("53.77", "51.77")
    row = rows(vllm("0.28.0", "Qwen/Qwen3-8B", 40960, wrong))["available_kv_bytes"]
    assert row["agrees"] is False


def test_the_older_engines_account_is_read() -> None:
    log = (
        "INFO llm_engine.py: Initializing a V0 LLM engine (v0.8.5) with config:"
        " model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=40960, tensor_parallel_size=1\n"
        "INFO the current vLLM instance can use total_gpu_memory (39.49GiB) x"
        " gpu_memory_utilization (0.90) = 35.54GiB\n"
        "model weights take 15.27GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak"
        " memory takes 1.40GiB; the rest of the memory reserved for KV Cache is 18.78GiB.\n"
        "INFO # cuda blocks: 8547, # CPU blocks: 1820\n"
    )
    found = rows(log)
    assert found["available_kv_bytes"]["agrees"] is True
    assert found["num_blocks"]["agrees"] is True
    assert found["weights_bytes"]["agrees"] is True


def test_the_account_of_0_6_4_is_a_table() -> None:
    """vllm-project/vllm#10511: 71.29 - 14.96 - 1.79 - 1.26 = 53.28 GiB."""
    table = {"total_gpu_memory": "79.22GiB", "gpu_memory_utilization": "0.90"} | {
        **{"the current vLLM instance can use": "71.29GiB", "model weights take": "14.96GiB"},
        **{"non_torch_memory": "1.79GiB", "PyTorch activation peak memory": "1.26GiB"},
        **{"available_kv_cache_memory": "53.29GiB"},
    }
    log = "$ vllm serve meta-llama/Meta-Llama-3-8B\n" + "".join(
        f"INFO worker.py:243] {name}    {value}\n" for name, value in table.items()
    )
    found = rows(log)
    assert found["available_kv_bytes"]["agrees"] is True
    assert found["weights_bytes"]["agrees"] is True


def test_the_second_model_runner_is_read() -> None:
    assert settings("INFO Using V2 Model Runner")["model_runner"] == "v2"
