"""Counts in logs are inverted exactly, and explained by nothing else."""

import json
from pathlib import Path

from start_up_lines import rows, vllm

# The sizes of its published config.json.
KIMI_LINEAR = {
    **{"model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"]},
    **{"hidden_size": 2304, "intermediate_size": 9216, "vocab_size": 163840, "head_dim": 72},
    **{"num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32},
    **{"kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "v_head_dim": 128},
    **{"qk_rope_head_dim": 64, "mla_use_nope": True, "dtype": "bfloat16"},
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [n for n in range(1, 27) if n % 4],
        **{"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4},
    },
    **{"moe_intermediate_size": 1024, "num_experts": 256, "num_experts_per_token": 8},
    **{"num_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1},
    **{"model_max_length": 1048576, "tie_word_embeddings": False, "rms_norm_eps": 1e-05},
}
GIB = 2**30


def test_counts_agree_only_where_a_number_of_blocks_gives_them_exactly() -> None:
    """Blocks of 16 tokens: 136,080 is 8,505 of them, and 136,085 none."""
    line = "INFO Available KV cache memory: 18.69 GiB\nINFO GPU KV cache size: {} tokens\n"
    for version in ("0.9.2", "0.30.0"):
        log = vllm(version, "Qwen/Qwen3-8B", 40960, line.format("136,080"))
        assert rows(log)["kv_tokens"]["agrees"] is True
        log = vllm(version, "Qwen/Qwen3-8B", 40960, line.format("136,085"))
        assert rows(log)["kv_tokens"]["agrees"] is False


def test_tokens_and_concurrency_must_be_of_one_number_of_blocks() -> None:
    """8,503 blocks are 136,048 tokens, of which 40,960 fit 3.32 times; 8,507 are 3.32 as well, and
    nothing that 18.69 GiB hold is 3.30."""
    lines = (
        "INFO Available KV cache memory: 18.69 GiB",
        "INFO GPU KV cache size: 136,048 tokens",
    )
    right = "INFO Maximum concurrency for 40,960 tokens per request: 3.32x"
    found = rows(vllm("0.9.2", "Qwen/Qwen3-8B", 40960, *lines, right))
    assert found["kv_tokens"]["agrees"] and found["concurrency"]["agrees"]
    found = rows(vllm("0.9.2", "Qwen/Qwen3-8B", 40960, *lines, right.replace("3.32", "3.30")))
    assert found["concurrency"]["agrees"] is False
    assert "no one other" in found["concurrency"]["why"]


def test_an_explanation_gives_every_count_exactly() -> None:
    """Twice as many tokens as bfloat16 gives are those of fp8, or of half the heads; weights that
    agree rule out the second."""
    lines = (
        "INFO Available KV cache memory: 18.69 GiB",
        "INFO GPU KV cache size: 272,176 tokens",
        "INFO Model loading took 15.27 GiB and 3 seconds",
    )
    why = rows(vllm("0.9.2", "Qwen/Qwen3-8B", 40960, *lines))["kv_tokens"]["why"]
    assert why.startswith("agrees with --kv-dtype fp8") and "--tp 2" not in why


def test_nothing_is_explained_from_an_estimate() -> None:
    """What the cache got is not logged: twice the tokens are no sign of a narrower cache."""
    log = vllm("0.9.2", "Qwen/Qwen3-8B", 40960, "INFO GPU KV cache size: 272,176 tokens")
    row = rows(log, "--device", "a100-40gb")["kv_tokens"]
    assert row["agrees"] is False
    assert "agrees with" not in row["why"] and "does not say what the cache got" in row["why"]


def test_prefixes_of_states_were_not_cached_before_0_15(tmp_path: Path) -> None:
    """vllm-project/vllm#28228: Kimi-Linear-48B on two devices with prefix caching asked for in
    0.11.1. 318 blocks of 960 tokens: 79 x 960 tokens in each of four groups, and 318 / (125 + 3)
    requests. Four ranks would give 2.44."""
    lines = (
        "non-default args: {'enable_prefix_caching': True, 'max_num_batched_tokens': 64000}",
        "(Worker_TP0 pid=1) INFO Available KV cache memory: 2.30 GiB",
        "INFO GPU KV cache size: 75,840 tokens",
        "INFO Maximum concurrency for 120,000 tokens per request: 2.48x",
    )
    (tmp_path / "config.json").write_text(json.dumps(KIMI_LINEAR))
    log = vllm("0.11.1", "cyankiwi/Kimi-Linear-48B-A3B-Instruct-AWQ-4bit", 120000, *lines, tp=2)
    found = rows(log, "--model", str(tmp_path))
    assert found["kv_tokens"]["agrees"] is True
    assert found["concurrency"]["agrees"] is True


def test_drafted_tokens_take_blocks_of_states_and_a_layer() -> None:
    """A start of a 27B hybrid with MTP 3 on two devices: 205 blocks of 1,600 tokens, of which a
    request of 262,144 takes 164 + 3 groups x (2 + 3)."""
    block = (4 * 256 * 2 // 2) * 1 * 1600 * 17
    memory = 205.5 * block / GIB
    lines = (
        "non-default args: {'enable_prefix_caching': True, 'kv_cache_dtype': 'fp8',"
        " 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}",
        f"INFO Available KV cache memory: {memory:.2f} GiB",
        "INFO GPU KV cache size: 300,220 tokens",
        f"INFO Maximum concurrency for 262,144 tokens per request: {205 / (164 + 15):.2f}x",
    )
    log = vllm("0.24.0", "Qwen/Qwen3.5-27B", 262144, *lines, tp=2)
    found = rows(log)
    assert int(205 / (164 + 3 * 5) * 262144) == 300220
    assert found["kv_tokens"]["agrees"] is True, found
    assert found["concurrency"]["agrees"] is True


def test_the_bytes_that_a_start_was_given_count_exactly(tmp_path: Path) -> None:
    """A start of vLLM 0.32's CPU build on three layers of 2 K/V heads of 16: 128 tokens a block."""
    config = {
        **{"model_type": "llama", "hidden_size": 128, "num_attention_heads": 8, "head_dim": 16},
        **{"num_key_value_heads": 2, "num_hidden_layers": 3, "intermediate_size": 256},
        **{"vocab_size": 512, "max_position_embeddings": 2048, "dtype": "float32"},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    log = "\n".join(
        [
            "(APIServer pid=1) INFO 12-01 12:44:01 [api_utils.py:286] non-default args: {'host':"
            " '127.0.0.1', 'port': 8765, 'model': '/models/converted', 'max_model_len': 1024,"
            " 'enforce_eager': True, 'kv_cache_memory_bytes': 50000000, 'max_num_seqs': 4}",
            "(EngineCore pid=2) INFO 12-01 12:44:31 [core.py:133] Initializing a V1 LLM engine"
            " (v0.32.0) with config: model='/models/converted', speculative_config=None",
            "(Worker pid=3) INFO 12-01 12:45:06 [cpu_worker.py:260] Explicitly set (0.05/23.34) GiB"
            " for KV cache on node 0.",
            "(EngineCore pid=2) INFO 12-01 12:45:06 [kv_cache_utils.py:2327] CPU KV cache size:"
            " 130,176 tokens, Maximum concurrency for 1,024 tokens per request: 127.12x",
        ]
    )
    found = rows(log, "--model", str(path))
    assert found["kv_tokens"]["predicted"] == found["kv_tokens"]["low"] == 130_176
    assert found["concurrency"]["predicted"] == 127.12
    assert all(row["agrees"] for row in found.values())
    other = rows(log.replace("130,176", "130,304"), "--model", str(path))  # a block more
    assert other["kv_tokens"]["agrees"] is False
