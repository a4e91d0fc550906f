"""`reconcile` of starts whose drafts are loaded, and have caches, beside the model's own.

Lines are those of published starts (shun8686/for_debug on GitHub), their facts only.
"""

import pytest

from start_up_lines import reconcile, rows

_GIB = 2**30


def _start(model: str, *, ranks: int, spread: str, rank: str, more: str, lines: str) -> str:
    head = (
        f"[2026-01-04 06:41:00] server_args=ServerArgs(model_path='{model}', dtype='bfloat16',"
        f" quantization='modelslim', tp_size={ranks}, page_size=128, {spread}, {more})\n"
    )
    return head + "".join(f"[2026-01-04 06:41:25 {rank}] {line}\n" for line in lines.splitlines())


_DATA_PARALLEL = "dp_size=32, enable_dp_attention=True, ep_size=32"
STARTS = {
    "EAGLE3 over 32 ranks of attention": (
        _start(
            "vllm-ascend/Qwen3-235B-A22B-W8A8",
            ranks=32,
            spread=_DATA_PARALLEL,
            rank="DP0 TP0 EP0",
            more="mem_fraction_static=0.8, context_length=8192, speculative_algorithm='EAGLE3',"
            " speculative_draft_model_path='/models/Qwen3-235B-A22B-Eagle3',"
            " speculative_num_steps=3, speculative_num_draft_tokens=4",
            lines="Load weight begin. avail mem=60.79 GB\n"
            "Load weight end. type=Qwen3MoeForCausalLM, avail mem=45.43 GB, mem usage=15.36 GB.\n"
            "KV Cache is allocated. #tokens: 190976, K size: 17.13 GB, V size: 17.13 GB\n"
            "Memory pool end. avail mem=11.15 GB\n"
            "Load weight begin. avail mem=7.43 GB\n"
            "Load weight end. type=LlamaForCausalLMEagle3, avail mem=4.71 GB, mem usage=2.72 GB.\n"
            "KV Cache is allocated. #tokens: 190976, K size: 0.18 GB, V size: 0.18 GB\n"
            "Memory pool end. avail mem=4.34 GB\n",
        ),
        {"kv_tokens": 190_976, "weights_bytes": 15.36, "available_kv_bytes": 34.26},
        "(EAGLE3): one more layer",
    ),
    "the model's own layers of MTP": (
        _start(
            "Howeee/DeepSeek-R1-0528-w8a8",
            ranks=32,
            spread=_DATA_PARALLEL,
            rank="DP0 TP0 EP0",
            more="mem_fraction_static=0.815, context_length=8192, speculative_algorithm='EAGLE',"
            " speculative_draft_model_path='Howeee/DeepSeek-R1-0528-w8a8',"
            " speculative_num_steps=2, speculative_num_draft_tokens=3",
            lines="Load weight begin. avail mem=60.77 GB\n"
            "Load weight end. type=DeepseekV3ForCausalLM, avail mem=19.77 GB, mem usage=41.00 GB.\n"
            "KV Cache is allocated. #tokens: 134272, KV size: 8.80 GB\n"
            "Memory pool end. avail mem=10.96 GB\n"
            "Load weight begin. avail mem=4.88 GB\n"
            "Load weight end. type=DeepseekV3ForCausalLMNextN, avail mem=0.70 GB,"
            " mem usage=4.18 GB.\n"
            "KV Cache is allocated. #tokens: 134272, KV size: 0.14 GB\n",
        ),
        {"kv_tokens": 134_272, "weights_bytes": 41.0, "available_kv_bytes": 8.8},
        "(EAGLE): the state of each is reckoned with, and the layers of MTP",
    ),
    "EAGLE3 over 2 ranks": (
        _start(
            "Qwen/Qwen3-30B-A3B-w8a8",
            ranks=2,
            spread="dp_size=1, enable_dp_attention=False, ep_size=1",
            rank="TP0",
            more="mem_fraction_static=0.86, speculative_algorithm='EAGLE3',"
            " speculative_draft_model_path='/models/Qwen3-a3B_eagle3', speculative_num_steps=3",
            lines="Load weight begin. avail mem=60.79 GB\n"
            "Load weight end. type=Qwen3MoeForCausalLM, avail mem=45.18 GB, mem usage=15.61 GB.\n"
            "KV Cache is allocated. #tokens: 802688, K size: 18.38 GB, V size: 18.38 GB\n"
            "Memory pool end. avail mem=8.40 GB\n"
            "Load weight begin. avail mem=6.27 GB\n"
            "Load weight end. type=LlamaForCausalLMEagle3, avail mem=5.88 GB, mem usage=0.39 GB.\n"
            "KV Cache is allocated. #tokens: 802688, K size: 0.38 GB, V size: 0.38 GB\n",
        ),
        {"kv_tokens": 802_688, "weights_bytes": 15.61, "available_kv_bytes": 36.76},
        "(EAGLE3): one more layer",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_draft_is_told_from_the_model_that_it_drafts_for(name: str) -> None:
    """Its weights and its cache come second, and by the order the version is told."""
    log, logged, note = STARTS[name]
    found = rows(log)
    assert found["kv_tokens"]["logged"] == logged["kv_tokens"]
    assert found["kv_tokens"]["agrees"] is True
    for figure in ("weights_bytes", "available_kv_bytes"):
        assert found[figure]["logged"] == round(logged[figure] * _GIB)
    output = " ".join(reconcile(log).output.split())
    assert note in output
    npu = rows(log.replace("quantization=", "device='npu', quantization="))["weights_bytes"]
    assert npu["agrees"] is None and "NPUs" in npu["why"]
    assert "does what 0.5.13 did" in output


def test_the_states_of_a_pool_count_beside_its_cells() -> None:
    """Of what the fraction gives, 39.38 of 51.46 that were left, states have 18.68."""
    log = (
        "server_args=ServerArgs(model_path='qwen3.5-27b', mem_fraction_static=0.8, tp_size=2)\n"
        "[2026-06-09 03:35:03 TP0] Load weight begin. avail mem=60.42 GB\n"
        "[2026-06-09 03:35:06 TP0] Load weight end. avail mem=51.46 GB, mem usage=8.96 GB.\n"
        "[2026-06-09 03:35:11 TP0] Mamba Cache is allocated. max_mamba_cache_size: 1521,"
        " conv_state size: 0.84GB, ssm_state size: 17.84GB\n"
        "[2026-06-09 03:35:13 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1359146,"
        " K size: 10.37 GB, V size: 10.37 GB\n"
    )
    found = rows(log)["available_kv_bytes"]
    assert found["predicted"] == pytest.approx((51.46 - 0.2 * 60.42 - 18.68) * _GIB, rel=1e-6)


def test_tokens_that_a_start_was_told_to_keep_follow_from_nothing_left() -> None:
    log = (
        "server_args=ServerArgs(model_path='Qwen/Qwen3-32B', mem_fraction_static=0.8,"
        " max_total_tokens=16384)\n"
        "[TP0] Load weight begin. avail mem=78.32 GB\n"
        "[TP0] Load weight end. type=Qwen3ForCausalLM, avail mem=16.73 GB, mem usage=61.59 GB.\n"
        "[TP0] KV Cache is allocated. #tokens: 16384, K size: 2.00 GB, V size: 2.00 GB\n"
    )
    found = rows(log)
    assert found["kv_tokens"]["agrees"] is True
    assert found["available_kv_bytes"]["agrees"] is None
