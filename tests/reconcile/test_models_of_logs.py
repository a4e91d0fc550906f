"""Which model a log is of, and how its weights are stored."""

import pytest

from headcount.plan.reconcile.log import log_of_lines
from headcount.plan.reconcile.model import known_name, stored_as
from start_up_lines import reconcile, rows, too_long, vllm


def settings(*lines: str) -> dict[str, object]:
    return dict(log_of_lines(lines).settings)


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


def test_models_of_the_size_that_was_loaded_are_offered() -> None:
    """15.27 GiB are 2 B of each parameter of Qwen3-8B."""
    lines = ("INFO Model loading took 15.2683 GiB and 3 seconds", too_long(131072, "18.0", "3.18"))
    failed = reconcile(vllm("0.11.0", "/data/model", 131072, *lines))
    assert failed.exit_code == 0
    assert "did not start" in failed.output and "18.00 GiB" in failed.output
    words = " ".join(failed.output.split())
    assert "'/data/model', which is not known here" in words and "--model NAME" in words
    assert "weights of this size have Qwen/Qwen3-8B" in words
    halves = ("INFO Model loading took 7.64 GiB and 3 seconds",)
    started = reconcile(vllm("0.11.0", "/data/model", 4096, *halves, tp=2))
    assert started.exit_code == 2
    assert "weights of this size have Qwen/Qwen3-8B" in " ".join(started.output.split())
    quantised = vllm("0.11.0", "/data/model", 4096, *lines[:1], more=", quantization=awq")
    assert "weights of this size" not in reconcile(quantised).output


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


@pytest.mark.parametrize(
    ("name", "gib", "agrees"),
    [
        ("nvidia/Gemma-4-31B-IT-NVFP4", "30.4", True),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "18.5", False),
        # Of others' files of the same format it is not known which matrices stay wide.
        ("RedHatAI/gemma-4-31B-it-NVFP4", "18.5", None),
        ("RedHatAI/gemma-4-31B-it-NVFP4", "30.4", True),
        ("RedHatAI/gemma-4-31B-it-NVFP4", "60.0", False),  # more than all of it in 16 bit
        ("cyankiwi/Qwen3.6-27B-AWQ-INT4", "19.5", None),
    ],
)
def test_weights_of_files_that_are_not_known_are_told_within_what_they_can_be(
    name: str, gib: str, agrees: bool | None
) -> None:
    log = vllm("0.24.0", name, 8192, f"Model loading took {gib} GiB memory and 10.2 seconds")
    found = rows(log)["weights_bytes"]
    assert found["agrees"] is agrees
    assert ("are not known here" in found["why"]) == (agrees is None)


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
