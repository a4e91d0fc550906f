"""Logs of SGLang, llama.cpp, Ollama and TensorRT-LLM, and tables of several logs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.reconcile.log import log_of_lines
from start_up_lines import reconcile, rows, vllm

GIB = 2**30
MIB = 2**20


# SGLang


def test_a_line_of_tokens_alone_is_sglangs() -> None:
    log = "[TP0] max_total_num_tokens=181721, chunked_prefill_size=8192, context_len=196608\n"
    assert log_of_lines([log]).engine == "sglang"
    assert "sglang" in reconcile(log, "--model", "qwen3-8b").output


def test_the_pool_of_a_hybrid_is_compared_without_its_states() -> None:
    """535,124 tokens of 16 layers x 4 heads x 2 x 256 x 2 bytes are 32.66 GiB; the states have 0.9
    of that again."""
    log = (
        "server_args=ServerArgs(model_path='Qwen/Qwen3.5-27B', mem_fraction_static=0.8)\n"
        "Load weight end. type=Qwen3_5ForConditionalGeneration, avail mem=87.11 GB,"
        " mem usage=51.86 GB.\n"
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 535124, K size: 16.33 GB,"
        " V size: 16.33 GB\n"
    )
    found = rows(log)
    assert found["kv_tokens"]["agrees"] is True
    assert found["kv_tokens"]["predicted"] == pytest.approx(32.66 * GIB / 65536, rel=1e-4)


# llama.cpp, Ollama and TensorRT-LLM


def test_caches_of_llama_cpp_are_recomputed() -> None:
    """gpt-oss-120b: 18 full layers of 131,072 cells and 18 with a window of 1,280."""
    log = (
        "print_info: general.name     = Gpt Oss 120b\n"
        "llama_kv_cache: size = 9216.00 MiB (131072 cells,  18 layers,  2/2 seqs),"
        " K (f16): 4608.00 MiB, V (f16): 4608.00 MiB\n"
    )
    state = log_of_lines(log.splitlines())
    assert state.figures["kv_gib"] == 9.0 and state.settings["batch_size"] == 2
    assert state.engine == "llama.cpp"
    whole = (
        "llama_kv_cache_unified: size = 1024.00 MiB (  8192 cells,  32 layers,  1/ 1 seqs),"
        " K (f16):  512.00 MiB, V (f16):  512.00 MiB\n"
    )
    row = rows(whole, "--model", "llama-3.1-8b")["kv_cache_bytes"]
    assert row["logged"] == row["predicted"] == 8192 * 131072
    assert row["agrees"] is True
    narrow = whole.replace("f16", "q8_0").replace("1024.00", " 544.00")
    assert rows(narrow, "--model", "llama-3.1-8b")["kv_cache_bytes"]["agrees"] is True
    assert rows(narrow, "--model", "qwen3-8b")["kv_cache_bytes"]["agrees"] is False


def test_the_older_caches_of_llama_cpp_are_read() -> None:
    log = (
        "llama_new_context_with_model: n_ctx      = 8192\n"
        "llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB\n"
        "llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB,"
        " V (f16):  512.00 MiB\n"
    )
    row = rows(log, "--model", "llama-3.1-8b")["kv_cache_bytes"]
    assert row["agrees"] is True and "8,192 tokens" in row["why"]


def test_a_cache_whose_length_is_not_said_is_that_of_so_many_tokens() -> None:
    """36 layers x 2 heads x 2 x 128 x 2 bytes: 144 MiB are 4,096 tokens of Qwen2.5-3B, and as well
    2,048 of a model that keeps twice as much: nothing agrees."""
    log = "llama_init_from_model: KV self size  =  144.00 MiB, K (f16):   72.00 MiB\n"
    row = rows(log, "--model", "qwen2.5-3b")["kv_cache_bytes"]
    assert row["agrees"] is None and "4,096 tokens" in row["why"]
    row = rows(log, "--model", "qwen2.5-3b", "--context", "4096")["kv_cache_bytes"]
    assert row["agrees"] is True


def test_ollama_logs_sizes_of_each_device() -> None:
    log = (
        'time=x level=INFO source=runner.go msg=load request="{KvSize:8192 Parallel:1}"\n'
        'time=x level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="4.3 GiB"\n'
        'time=x level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="768.0 MiB"\n'
        'time=x level=INFO source=device.go:251 msg="kv cache" device=CPU size="256.0 MiB"\n'
    )
    row = rows(log, "--model", "llama-3.1-8b")["kv_cache_bytes"]
    assert row["logged"] == 1024 * MIB and row["agrees"] is True
    older = (
        'msg=offload library=cuda memory.required.full="6.2 GiB" memory.required.kv="1.0 GiB"\n'
        "llama_context: n_ctx = 8192\n"
    )
    row = rows(older, "--model", "llama-3.1-8b")["kv_cache_bytes"]
    assert row["agrees"] is True


def test_blocks_of_tensorrt_llm_are_recomputed() -> None:
    """16.05 GiB of Llama-3.1-8B with a cache of fp8: 65,536 bytes a token, blocks of 32."""
    log = (
        "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache"
        " (263008)\n"
        "[TRT-LLM] [I] kv size per token is 65536 bytes/token. device total memory 31.84 GiB\n"
    )
    found = rows(log, "--model", "llama-3.1-8b", "--kv-dtype", "fp8")
    assert found["kv_tokens"]["agrees"] is True and 8219 * 32 == 263008
    assert found["num_blocks"]["agrees"] is True
    assert found["rank_cache_bytes_per_token"]["predicted"] == 65536
    why = rows(log, "--model", "llama-3.1-8b")["kv_tokens"]["why"]
    assert why.startswith("agrees with --kv-dtype fp8")


# Several logs


def test_several_logs_and_folders_are_a_table(tmp_path: Path) -> None:
    good = vllm("0.9.2", "Qwen/Qwen3-8B", 40960, "INFO Available KV cache memory: 18.69 GiB",
                "INFO GPU KV cache size: 136,080 tokens")  # fmt: skip
    bad = "ValueError: No available memory for the cache blocks. Try increasing\n"
    for name, text in (("a.log", good), ("b.log", bad), ("c.log", "hello\n")):
        (tmp_path / name).write_text(text)
    folder = CliRunner().invoke(main, ["reconcile", str(tmp_path)])
    assert folder.exit_code == 0, folder.output
    for words in ("1 of 1 figures agree", "did not start", "No figures that engines log are in"):
        assert words in folder.output
    names = [str(tmp_path / name) for name in ("a.log", "b.log")]
    two = CliRunner().invoke(main, ["reconcile", *names, "--exit-code", "--format", "csv"])
    assert two.exit_code == 1
    lines = two.output.splitlines()
    assert lines[0].endswith("log,engine,model,verdict,largest_context,what")
    assert len(lines) == 3
    whole = CliRunner().invoke(main, ["reconcile", *names, "--format", "json"])
    assert '"explanation"' in whole.output
    empty = tmp_path / "empty"
    empty.mkdir()
    assert CliRunner().invoke(main, ["reconcile", str(empty)]).exit_code == 2


@pytest.mark.parametrize(
    ("tokens", "more", "words"),
    [
        ("300,220", "", "it has with --kv-dtype fp8"),
        ("300,220", ", kv_cache_dtype=fp8", "neither cache memory nor a device"),
        ("300,219", ", kv_cache_dtype=fp8", "with any one setting changed"),
    ],
)
def test_tokens_without_a_memory_are_of_whole_blocks_or_of_another_start(
    tokens: str, more: str, words: str
) -> None:
    """205 blocks of which a request takes 164 + 3 x 5 were logged, of a cache of 8 bit:
    int(205 / 179 x 262,144); a block more is 1,464 tokens."""
    log = vllm(
        *("0.24.0", "Qwen/Qwen3.5-27B", 262144, f"INFO GPU KV cache size: {tokens} tokens"),
        "INFO Maximum concurrency for 262,144 tokens per request: 1.15x",
        tp=2,
        more=f", enable_prefix_caching=True{more}",
    ).replace(
        "speculative_config=None",
        "speculative_config=SpeculativeConfig(method='mtp',"
        " model='Qwen/Qwen3.5-27B', num_spec_tokens=3)",
    )
    found = rows(log)
    assert words in found["kv_tokens"]["why"] and found["kv_tokens"]["agrees"] is None
    assert found["concurrency"]["agrees"] is (True if "neither" in words else None)
