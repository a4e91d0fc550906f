"""What `reconcile` reads of logs of several engines and versions: settings, names, ranks, sizes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.engines.start_log import Rank
from headcount.plan.reconcile.log import log_of_lines
from headcount.plan.reconcile.model import known_name, stored_as
from start_up_lines import reconcile, rows, vllm

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
MIB = 2**20


def settings(*lines: str) -> dict[str, object]:
    return dict(log_of_lines(lines).settings)


# Versions


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("vLLM API server version 0.11.1", "0.11.1"),
        ("INFO [api_utils.py:345]        █     █     █▄   ▄█", None),
        ("INFO [api_utils.py:345]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.26.0", "0.26.0"),
        ("(APIServer pid=1) INFO 07-30 07:06:32 [api_utils.py:345]  version 0.26.0", "0.26.0"),
        (
            "Initializing a V1 LLM engine (v0.10.2.dev378+g4d7fe40fc) with",
            "0.10.2.dev378+g4d7fe40fc",
        ),
        ("vLLM Version                 : 0.10.1.1", "0.10.1.1"),
        ("vLLM Version: 0.7.3", "0.7.3"),
        ("vLLM Version 0.10.1.1+381074ae.nv25.09", "0.10.1.1+381074ae.nv25.09"),
        ("[pip3] vllm==0.8.5.post1", "0.8.5.post1"),
        ("image: vllm/vllm-openai:v0.10.2", "0.10.2"),
        ("docker run --gpus all vllm/vllm-openai:v0.9.1 --model x", "0.9.1"),
        ("image: rocm/vllm:rocm6.4.1_vllm_0.10.0_20250812", "0.10.0"),
        ("pip install vllm==0.6.4.post1", "0.6.4.post1"),
        ("sglang: 0.5.3rc0", "0.5.3rc0"),
        ("image: lmsysorg/sglang:v0.5.4.post1-cu129", "0.5.4.post1-cu129"),
        ("[TensorRT-LLM] TensorRT-LLM version: 0.20.0", "0.20.0"),
        ("build: 4701 (be3bbd62) with MSVC 19.41.34120.0 for x64", "4701"),
    ],
)
def test_versions_are_read_from_banners_lists_and_images(line: str, version: str | None) -> None:
    assert settings(line).get("version") == version


def test_what_the_engine_says_of_itself_counts_before_what_is_installed() -> None:
    engine = "Initializing a V1 LLM engine (v0.11.0) with config"
    assert settings(engine, "[pip3] vllm==0.8.5")["version"] == "0.11.0"
    assert settings("[pip3] vllm==0.8.5", engine)["version"] == "0.11.0"


# Models


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B/", "Qwen/Qwen3-8B"),
        (
            "/data/cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46",
            "Qwen/Qwen3-8B",
        ),
        ("/models--Qwen--Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/data/cache/modelscope/hub/Qwen/Qwen2___5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "Qwen/Qwen3-14B"),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "Qwen/Qwen3-8B"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "meta-llama/Llama-3.1-70B"),
        (r"B:\models\Qwen2.5-3B-Instruct-Q4_K_M.gguf", "Qwen/Qwen2.5-3B-Instruct"),
        ("/m/DeepSeek-R1-Q2_K-00001-of-00030.gguf", "deepseek-ai/DeepSeek-R1"),
        ("Meta Llama 3.1 8B Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("/model", None),
        ("/data/ollama/models/blobs/sha256-dde5aa3f", None),
    ],
)
def test_models_are_known_by_the_paths_that_people_have(name: str, known: str | None) -> None:
    found = known_name(name)
    assert (found is None) == (known is None), found
    if known is not None and found is not None:
        plain = [text.casefold().rsplit("/", 1)[-1] for text in (found, known)]
        assert plain[0].replace("meta-", "") == plain[1]


def test_a_model_that_is_not_known_is_asked_for() -> None:
    log = vllm("0.11.0", "/model", 4096, "INFO Available KV cache memory: 5.00 GiB")
    done = reconcile(log)
    assert done.exit_code == 2
    assert "'/model'" in done.output and "--model NAME" in done.output
    assert reconcile(log, "--model", "qwen3-8b").exit_code == 0


def test_a_served_name_stands_in_for_a_path_that_says_nothing() -> None:
    log = vllm(
        *("0.11.0", "/model", 4096, "INFO Available KV cache memory: 5.00 GiB"),
        "non-default args: {'model': '/model', 'served_model_name': ['qwen3-8b']}",
    )
    assert "Qwen/Qwen3-8B" in reconcile(log).output


@pytest.mark.parametrize(
    ("named", "name", "stored"),
    [
        ("awq_marlin", "x/y", "awq"),
        ("gptq_marlin", "x/y-GPTQ-Int4", "gptq"),
        ("gptq_marlin", "x/y-GPTQ-Int8", "int8"),
        ("compressed-tensors", "x/y-quantized.w4a16", "gptq"),
        ("compressed-tensors", "x/y-NVFP4", "nvfp4"),
        ("compressed-tensors", "x/y", "fp8"),
        ("bitsandbytes", "x/y", "nf4"),
        ("modelopt", "x/y-NVFP4", "nvfp4"),
        ("fp8", "x/y", "fp8"),
        ("None", "x/y", None),
        (None, "x/y-Q4_K_M.gguf", "q4_k_m"),
        (None, "x/y-AWQ", "awq"),
    ],
)
def test_how_weights_are_stored_is_read(named: str | None, name: str, stored: str | None) -> None:
    assert stored_as(named, [name]) == stored


def test_weights_are_weighed_as_the_log_says_they_are_stored() -> None:
    """5.70 GiB: RedHatAI's 4-bit Llama-3.1-8B, groups of 128, embeddings and head in bfloat16."""
    loaded = "INFO Model loading took 5.3743 GiB and 3 seconds"
    log = vllm(
        *("0.8.5", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", 8192, loaded),
        more=", quantization=compressed-tensors",
    )
    assert rows(log)["weights_bytes"]["agrees"] is True
    assert rows(log, "--dtype", "bf16")["weights_bytes"]["agrees"] is not None


@pytest.mark.parametrize(
    "kernel",
    [
        "Using MarlinLinearKernel for CompressedTensorsWNA16",
        "Using CompressedTensorsWNA16MarlinMoEMethod",
    ],
)
def test_the_scheme_of_the_kernels_is_that_of_the_weights(kernel: str) -> None:
    """Of compressed-tensors the arguments do not tell it, and a path no name: the same 5.37 GiB
    (compressed_tensors_wNa16.py and compressed_tensors_moe.py of vLLM have the lines)."""
    log = vllm(
        *("0.10.0", "/model", 8192, "INFO Model loading took 5.3743 GiB and 3 seconds"),
        f"INFO {kernel}",
        more=", quantization=compressed-tensors",
    )
    assert rows(log, "--model", "llama-3.1-8b-instruct")["weights_bytes"]["agrees"] is True
    plain = log.replace("CompressedTensorsWNA16", "CompressedTensorsW8A8Fp8")
    assert rows(plain, "--model", "llama-3.1-8b-instruct")["weights_bytes"]["agrees"] is False


def test_the_model_of_a_banner_is_read() -> None:
    """log_version_and_model of vllm/entrypoints/utils.py, since 0.16."""
    log = (
        "INFO [api_utils.py:345]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.26.0\n"
        "INFO [api_utils.py:345]   █▄█▀ █     █     █     █  model   Qwen/Qwen3-8B\n"
        "INFO Available KV cache memory: 5.00 GiB\n"
    )
    assert "Qwen/Qwen3-8B on vllm 0.26.0" in reconcile(log).output


@pytest.mark.parametrize(
    "said",
    [
        "non-default args: {'model':  'Qwen/Qwen3-8B', 'max_model_len':   4096}",
        'args: {"model":"Qwen/Qwen3-8B","max_model_len":4096}',
        "llm = LLM(model = 'Qwen/Qwen3-8B', max_model_len = 4096)",
        "model='Qwen/Qwen3-8B' max_model_len: 4096",
    ],
)
def test_what_stands_between_a_name_and_its_value(said: str) -> None:
    """Code of a traceback, which assigns to the same names, says none."""
    code = "    model = initialize_model(vllm_config)\n    dtype = torch.get_default_dtype()"
    found = settings(f"{said}\n{code}")
    assert found["model"] == "Qwen/Qwen3-8B" and found["context"] == 4096
    assert "dtype" not in found


def test_the_dtype_that_is_asked_for_is_that_of_the_weights() -> None:
    log = vllm("0.8.5", "Qwen/Qwen3-8B", 8192, "INFO Model loading took 15.27 GiB and 3 s")
    wide = rows(log)["weights_bytes"]
    narrow = rows(log, "--dtype", "fp8")["weights_bytes"]
    assert wide["agrees"] is True
    assert narrow["predicted"] < 0.6 * wide["predicted"]


# Settings


def test_advice_in_a_line_is_no_setting() -> None:
    """vllm-project/vllm prints three shares in the notice on CUDA graphs, of which one is set."""
    notice = (
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current"
        " --gpu-memory-utilization=0.9764 is equivalent to --gpu-memory-utilization=0.9543 without"
        " CUDA graph memory profiling. To maintain the same effective KV cache size as before,"
        " increase --gpu-memory-utilization to 0.9985."
    )
    assert settings(notice)["utilisation"] == 0.9764
    started = vllm("0.26.0", "Qwen/Qwen3-8B", 8192, notice, "INFO GPU KV cache size: 8,192 tokens")
    assert "Utilisation  0.9764" in reconcile(started).output
    assert "tp" not in settings("Try lowering --gpu-memory-utilization or --tensor-parallel-size 8")


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("vllm serve x -tp 4", "tp", 4),
        ("vllm serve x --tensor-parallel-size  4", "tp", 4),
        ("vllm serve x --tensor-parallel-size=4", "tp", 4),
        ("vllm serve x --max-model-len 32k", "context", 32000),
        ("vllm serve x --max-model-len 32K", "context", 32768),
        ('command: ["--model", "x", "--max-num-seqs", "16"]', "max_num_seqs", 16),
        ("vllm serve x --enforce-eager", "enforce_eager", "True"),
        ("vllm serve x --no-enable-prefix-caching", "caches_prefixes", "False"),
        ("args: Namespace(max_model_len=-1, tensor_parallel_size=2)", "tp", 2),
        ("speculative_config={'method': 'mtp', 'num_speculative_tokens': 3}", "speculated", 3),
        ("SpeculativeConfig: speculative_config=SpeculativeConfig(method='eagle3', model='a/b',"
         " num_spec_tokens=5)", "speculated", 5),
    ],
)  # fmt: skip
def test_settings_are_read_as_people_and_engines_write_them(
    line: str, name: str, value: object
) -> None:
    assert settings(line)[name] == value


def test_the_models_of_drafts_are_not_the_models() -> None:
    line = (
        "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B',"
        " speculative_config=SpeculativeConfig(method='eagle3', model='a/b', num_spec_tokens=5)"
    )
    assert settings(line)["model"] == "Qwen/Qwen3-8B"
    assert settings(line)["speculative_method"] == "eagle3"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("increase --gpu-memory-utilization from 0.9500 to 0.9521 to maintain the same effective"
         " KV cache size.", 0.95),
        ("re-enabling it (the default as of v0.21.0) and increasing --gpu-memory-utilization from"
         " 0.8000 to 0.8125.", 0.8),
        ("The current --gpu-memory-utilization=0.9000 is equivalent to"
         " --gpu-memory-utilization=0.8849 without CUDA graph memory profiling. To maintain the"
         " same effective KV cache size as before, increase --gpu-memory-utilization to 0.9151.",
         0.9),
    ],
)  # fmt: skip
def test_notices_of_graphs_name_the_setting_and_what_is_advised(said: str, told: float) -> None:
    """As gpu_worker.py of vLLM 0.18 and 0.19, and of 0.20 to 0.32, words them."""
    assert settings(f"INFO [gpu_worker.py:470] {said}")["utilisation"] == told


def test_what_a_start_was_told_counts_before_what_is_said_in_passing() -> None:
    told = "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', dtype=x"
    request = "Received request cmpl-1: params: x, model=other."
    assert settings(told, request)["model"] == "Qwen/Qwen3-8B"


# Ranks


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


# The log's own account


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


# Exact inversion


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
    assert found["bytes_per_token"]["predicted"] == 65536
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
