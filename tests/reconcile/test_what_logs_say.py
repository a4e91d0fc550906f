"""What `reconcile` reads of logs of several engines and versions: versions and settings."""

import pytest

from headcount.plan.reconcile.log import log_of_lines
from start_up_lines import reconcile, vllm


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
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("Unable to find image 'vllm/vllm-openai:v0.17.0-cu130' locally", "0.17.0-cu130"),
        ("image: vllm/vllm-openai-rocm:v0.14.0", "0.14.0"),
        ("public.ecr.aws/q9t5s3a7/vllm-release-repo:v0.11.2", "0.11.2"),
        ("public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.9.1", "0.9.1"),
        ("rocm/vllm:rocm6.3.1_instinct_vllm0.8.3_20250415", "0.8.3"),
        ("nvcr.io/nvidia/vllm:25.10-py3", "0.10.2"),
        ("nvcr.io/nvidia/vllm:99.99-py3", None),
        ("image: vllm/vllm-openai:latest", None),
        ("image=vllm/vllm-openai@sha256:0.11.0", None),
        ("lmsysorg/sglang:v0.5.5", "0.5.5"),
        ("lmsysorg/sglang:v0.5.6.post2-rocm700-mi35x", "0.5.6.post2-rocm700-mi35x"),
        ("rocm/sgl-dev:v0.5.3-rocm700-mi30x-20251009", "0.5.3-rocm700-mi30x-20251009"),
        ("lmsysorg/sglang:latest", None),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b7062", "7062"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13-b7062", "7062"),
        ("ghcr.io/ggml-org/llama.cpp:full-b6500", "6500"),
        ("ghcr.io/ggerganov/llama.cpp:server-vulkan-b4719", "4719"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", None),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0rc6", "1.0.0rc6"),
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
