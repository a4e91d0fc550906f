"""`reconcile` of logs that print what a GGUF file says, and of allocations that failed there.

Lines are those of published starts (Kelsidavis/rusteze, ghghang2/v1.6 and others on GitHub), their
facts only; failures are of the formats of ggml's and llama.cpp's sources.
"""

import pytest

from start_up_lines import reconcile, rows

_GIB, _MIB = 2**30, 2**20
_CODER = """\
build: 7780 (7dee9ff59) with GNU 13.3.0 for Linux x86_64
llama_model_loader: loaded meta data with 29 key-value pairs and 339 tensors from /m/some-7b.gguf
llama_model_loader: - kv   0:                       general.architecture str              = qwen2
llama_model_loader: - kv   6:                          qwen2.block_count u32              = 28
llama_model_loader: - kv   7:                       qwen2.context_length u32              = 131072
llama_model_loader: - kv   8:                     qwen2.embedding_length u32              = 3584
llama_model_loader: - kv  10:                 qwen2.attention.head_count u32              = 28
llama_model_loader: - kv  11:              qwen2.attention.head_count_kv u32              = 4
llama_model_loader: - kv  17:      tokenizer.ggml.tokens arr[str,152064]  = ["!", "#", ...
print_info: file type   = Q8_0
print_info: file size   = 7.54 GiB (8.50 BPW)
load_tensors:        CUDA0 model buffer size =  7165.44 MiB
load_tensors:    CUDA_Host model buffer size =   552.23 MiB
llama_kv_cache: size = 1792.00 MiB ( 32768 cells,  28 layers,  4/1 seqs), K (f16):  896.00 MiB, \
V (f16):  896.00 MiB
"""
_PRINTED = """\
llm_load_print_meta: arch             = llama
llm_load_print_meta: n_ctx_train      = 8192
llm_load_print_meta: n_embd           = 4096
llm_load_print_meta: n_layer          = 32
llm_load_print_meta: n_head           = 32
llm_load_print_meta: n_head_kv        = 8
llm_load_print_meta: n_embd_head_k    = 128
llm_load_print_meta: n_embd_head_v    = 128
llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB
llama_new_context_with_model: n_ctx      = 8192
llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB, V (f16):  512.00 \
MiB
"""


def test_a_file_that_nobody_knows_is_the_model_of_its_key_values() -> None:
    found = rows(_CODER)
    assert found["kv_cache_bytes"]["agrees"] is True
    assert found["kv_cache_bytes"]["predicted"] == 28 * 2 * 4 * 128 * 2 * 32768
    assert found["weights_bytes"]["agrees"] is True
    assert "model is that of the key-values" in " ".join(reconcile(_CODER).output.split())


def test_sizes_that_are_printed_stand_for_key_values() -> None:
    found = rows(_PRINTED)["kv_cache_bytes"]
    assert found["agrees"] is True
    assert found["predicted"] == 32 * 2 * 8 * 128 * 2 * 8192


@pytest.mark.parametrize(
    "line",
    [
        "- kv  11: qwen2.attention.head_count_kv arr[i32,28] = [4, 4, 4, 4, 4, ...",
        "- kv  10:   qwen2.attention.head_count u32              = 27",
    ],
)
def test_key_values_that_are_cut_short_or_make_no_model_describe_none(line: str) -> None:
    key = line.split()[2]
    lines = [line if key in known else known for known in _CODER.splitlines()]
    result = reconcile("\n".join(lines))
    assert result.exit_code == 2
    assert "say which it is with --model NAME" in " ".join(result.output.split())


def test_a_list_that_is_cut_short_is_read_where_it_is_printed_whole() -> None:
    cut = _CODER.replace(
        "qwen2.attention.head_count_kv u32              = 4",
        "qwen2.attention.head_count_kv arr[i32,28]      = [4, 4, 4, 4, 4, 4, ...",
    )
    whole = f"print_info: n_head_kv             = [{', '.join(28 * ['4'])}]\n"
    assert rows(cut + whole)["kv_cache_bytes"]["agrees"] is True


def test_another_model_than_the_name_says_is_that_of_its_key_values() -> None:
    log = _CODER.replace("/m/some-7b.gguf", "/m/Qwen3-8B-Q8_0.gguf")
    result = reconcile(log)
    assert "which differ from those of Qwen/Qwen3-8B" in " ".join(result.output.split())
    assert rows(log)["kv_cache_bytes"]["agrees"] is True


def test_a_draft_that_loads_beside_it_is_not_the_model() -> None:
    draft = (
        "llama_model_loader: loaded meta data with 29 key-value pairs and 290 tensors from d.gguf\n"
        "llama_model_loader: - kv   6:    qwen2.block_count u32              = 24\n"
        "llama_kv_cache: size =  384.00 MiB ( 32768 cells,  24 layers,  1/1 seqs), K (f16):  192.00"
        " MiB, V (f16):  192.00 MiB\n"
    )
    found = rows(_CODER + draft)["kv_cache_bytes"]
    assert found["logged"] == 1792 * _MIB
    assert found["agrees"] is True


def test_weights_of_another_mix_than_the_name_says_are_the_files() -> None:
    """A dynamic mix of 12.48 GiB on the device, and the embedding in the host's memory, too."""
    log = (
        "build_info: b8854-de71b5f81\n"
        "llama_model_loader: loaded meta data with 60 key-value pairs and 658 tensors from"
        " /m/gemma-4-26B-A4B-it-UD-IQ4_NL.gguf\n"
        "print_info: file type   = IQ4_NL - 4.5 bpw\n"
        "print_info: file size   = 12.48 GiB (4.25 BPW)\n"
        "load_tensors:        CUDA0 model buffer size = 12782.11 MiB\n"
        "load_tensors:    CUDA_Host model buffer size =   748.00 MiB\n"
    )
    found = rows(log)["weights_bytes"]
    assert found["logged"] == pytest.approx((12782.11 + 748) * _MIB, abs=_MIB)
    assert found["agrees"] is True
    assert "12.48 GiB by the log's own account" in found["why"]
    assert "llama.cpp 8854" in reconcile(log).output


def test_the_version_of_what_runs_the_engine_is_not_the_engines() -> None:
    log = 'msg="Listening on 127.0.0.1:11434 (version 0.32.0)"\n' + _CODER.split("\n", 1)[1]
    assert "Ollama 0.32.0 names no version of llama.cpp" in " ".join(reconcile(log).output.split())


_FAILED = """\
build: 9300 (abcdef12) with GNU 13.3.0 for Linux x86_64
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - \
23871 MiB free
llama_model_loader: loaded meta data with 32 key-value pairs and 707 tensors from \
/m/Qwen3-32B-Q4_K_M.gguf (version GGUF V3)
load_tensors: offloaded 65/65 layers to GPU
load_tensors:        CUDA0 model buffer size = 18430.00 MiB
load_tensors:   CPU_Mapped model buffer size =   417.30 MiB
"""
_NO_CACHE = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc"
    " failed: out of memory\n"
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv"
    " cache\n"
)


@pytest.mark.parametrize(
    ("said", "context", "command"),
    [
        ("llama_context: n_seq_max     = 1\nllama_context: n_ctx         = 32768\n", 32768, "1"),
        (
            "llama_context: n_seq_max     = 4\nllama_context: n_ctx         = 32768\n"
            "llama_context: kv_unified    = false\n",
            8192,
            "4 ",
        ),
        (
            "llama_context: n_seq_max     = 4\nllama_context: n_ctx         = 32768\n"
            "llama_context: kv_unified    = true\n",
            32768,
            "4 --kv-unified",
        ),
        ("", 32768, "1"),  # as many tokens as 8,192 MiB hold
    ],
)
def test_advice_keeps_the_context_that_the_start_had(said: str, context: int, command: str) -> None:
    """64 layers x 2 x 8 heads x 128 x 2 B x 32,768 tokens are 8 GiB, and 5.31 were left."""
    found = rows(_FAILED + said + _NO_CACHE)
    assert found["left_bytes"]["logged"] == (23871 - 18430) * _MIB
    narrower = found["change_kv_dtype"]
    assert narrower["predicted"] == "q8_0"  # 34 of 64 B each
    assert f"-c 32768 --parallel {command}" in narrower["why"]
    shorter = found["change_context"]["predicted"]
    assert shorter < context * 5.31 / 8
    layers = found["change_gpu_layers"]["predicted"]
    kept = 8 * layers / 64 + 18430 / 1024 * layers / 65
    assert kept < 23871 / 1024


def explained(log: str) -> str:
    return " ".join(reconcile(log).output.split())


_OF_TENSORS = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592\n"


def test_a_cache_is_allocated_in_the_words_of_weights() -> None:
    """ggml/src/ggml-alloc.c says the same of both; llama_kv_cache names its own after it."""
    tried, said = _NO_CACHE.splitlines(keepends=True)
    found = rows(_FAILED + "llama_context: n_ctx         = 32768\n" + tried + _OF_TENSORS + said)
    assert "the cache of 8.00 GiB found no room" in found["failure"]["why"]


def test_the_context_is_what_the_log_says_of_it() -> None:
    """Of the whole, of a sequence, or by the cache that found no room: 64 layers x 8 heads x 2 x
    128 x 2 B of a token; else it is said that the model's longest is taken."""
    for said in ("n_ctx         = 32768", "n_ctx_seq     = 32768", "n_ctx_per_seq = 32768"):
        text = explained(_FAILED + f"llama_context: {said}\n" + _NO_CACHE)
        assert "-c 32768" in text and "says no context" not in text
    by_size = explained(_FAILED + _NO_CACHE)
    assert "-c 32768" in by_size and "found no room is of 32,768 tokens" in by_size
    weights = "".join(_FAILED.splitlines(keepends=True)[:3]) + _OF_TENSORS.replace(
        "alloc_tensor_range",
        "allocating 18430.00 MiB on device 0: cudaMalloc failed: out of memory\nalloc_tensor_range",
    )
    assert "the model's longest, 40,960 tokens, is taken" in explained(weights)


def test_weights_that_do_not_fit_leave_layers_to_the_host() -> None:
    log = _FAILED.splitlines(keepends=True)
    log[2] = log[2].replace("Q4_K_M", "Q8_0")
    failed = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 32400.00 MiB on device 0:"
        " cudaMalloc failed: out of memory\n"
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 33973862400\n"
    )
    found = rows("".join(log[:3]) + failed)
    assert "the weights of 31.64 GiB found no room" in found["failure"]["why"]
    change = found["change_gpu_layers"]
    layers = int(change["predicted"])
    assert f"-ngl {layers}" in change["why"]
    matrix = 151_936 * 5120  # of the embedding, which stays in the host's memory, and of the output
    each = (32_762_123_264 - 2 * matrix) / 64

    def taken(count: int) -> float:
        """Of so many layers and the output: 8.5 bit each, and 2 x 8 x 128 x 2 B of 40,960."""
        return (count * each + matrix) * 8.5 / 8 + count * 4096 * 40960

    assert taken(layers - 1) < 23871 * _MIB < taken(layers) + 0.5 * _GIB


def test_what_fits_on_several_devices_is_not_made_up() -> None:
    second = (
        "llama_model_load_from_file_impl: using device CUDA1 (NVIDIA GeForce RTX 3060)"
        " (0000:02:00.0) - 11800 MiB free\n"
        "load_tensors:        CUDA1 model buffer size =  9000.00 MiB\n"
    )
    failed = _NO_CACHE.replace("device 0", "device 1").replace("8192.00", "4096.00")
    found = rows(_FAILED + second + failed)
    assert (
        "the cache of 4.00 GiB found no room on device 1: 2.73 GiB were free"
        in (found["failure"]["why"])
    )
    assert not [name for name in found if name.startswith("change_")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ggml_vulkan: Device memory allocation of size 3221225472 failed.", "of 3.00 GiB"),
        (
            "ggml_metal_buffer_type_alloc_buffer: error: failed to allocate buffer, size ="
            " 5536.02 MiB",
            "of 5.41 GiB",
        ),
        ("CUDA error: out of memory", "the cache found no room"),
    ],
)
def test_every_device_says_that_it_is_full_in_its_own_words(line: str, words: str) -> None:
    assert words in rows(_FAILED + line + "\n")["failure"]["why"]


@pytest.mark.parametrize(
    "line",
    [
        'msg=load request="{Operation:fit Parallel:true KvSize:none KvCacheType:99999999999 x}"',
        "llama_context: n_seq_max     = 0\nllama_context: kv_unified    = false",
        "llama_context: n_ctx         = 0",
        "llama_model_loader: - kv   6: qwen2.block_count u32              = 99999999999999999999",
        "llama_model_loader: - kv   6: qwen2.block_count u32              = none",
        "print_info: n_head_kv             = [,,,]",
    ],
)
def test_odd_numbers_give_a_report_or_an_error(line: str) -> None:
    result = reconcile(_FAILED + "llama_context: n_ctx         = 4096\n" + line + "\n" + _NO_CACHE)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in (0, 2)


def test_weights_that_are_packed_anew_count_once() -> None:
    """bgpr/armage: 1.24 B parameters on a telephone, all of them twice."""
    log = (
        "llama_model_loader: loaded meta data with 35 key-value pairs and 147 tensors from"
        " /m/Llama-3.2-1B-Instruct-Q4_K_M.gguf\n"
        "print_info: file size   = 762.81 MiB (5.18 BPW)\n"
        "load_tensors:   CPU_Mapped model buffer size =   762.81 MiB\n"
        "load_tensors:   CPU_REPACK model buffer size =   762.55 MiB\n"
    )
    found = rows(log)["weights_bytes"]
    assert found["logged"] == round(762.81 * _MIB)
    assert found["agrees"] is True
