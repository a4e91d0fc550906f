"""Forms of lines that published logs have, by the issue where they stand: their facts only."""

import pytest

from start_up_lines import out_of_memory, reconcile, rows, too_long, vllm

_GIB = 2**30


def _words(log: str, *args: str) -> str:
    return " ".join(reconcile(log, *args).output.split())


def test_what_a_process_has_itself_is_told_from_what_others_have() -> None:
    """vllm-project/vllm#8731: three others before and after it."""
    others = "Process 31 has 1.62 GiB memory in use."
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total"
        f" capacity of 39.56 GiB of which 60.81 MiB is free. {others} {others} Including"
        f" non-PyTorch memory, this process has 34.61 GiB memory in use. {others} Of the allocated"
        " memory 28.75 GiB is allocated by PyTorch, with 28.60 MiB allocated in private pools"
    )
    command = "api_server --model Qwen2.5-32B-Instruct -tp 4 --max-model-len 1000\n"
    assert "other processes hold 4.89 of 39.56 GiB" in _words(command + error)


def test_older_options_name_what_drafts() -> None:
    """vllm-project/vllm#8731."""
    log = (
        "api_server --model Qwen/Qwen2.5-32B-Instruct -tp 4 --max-model-len 1000"
        " --speculative_model Qwen/Qwen2.5-7B-Instruct --num_speculative_tokens 5\n"
        "INFO Available KV cache memory: 3.00 GiB\n"
    )
    assert "speculates 5 tokens (draft_model): the draft Qwen/Qwen2.5-7B" in _words(log)


def test_parts_of_a_dotted_word_are_no_settings() -> None:
    """ollama/ollama#9782: `layers.model` counts layers."""
    log = (
        "msg=offload library=cuda layers.requested=-1 layers.model=62 layers.offload=62"
        ' memory.required.kv="38.1 GiB"\n'
    )
    assert "the log names no model" in _words(log)


def test_tokens_for_the_cache_below_nothing_have_the_bytes_of_each() -> None:
    """sgl-project/sglang#7691: 61 layers of 576 elements in two bytes, 561,981 times."""
    log = (
        "server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-R1', mem_fraction_static=0.95,"
        " tp_size=8, dp_size=8, enable_dp_attention=True, max_total_tokens=131072)\n"
        "[2025-07-02 07:41:58 DP0 TP0] Load weight end. avail mem=21.73 GB, mem usage=166.59 GB.\n"
        "[2025-07-02 07:41:59 DP0 TP0] max_total_tokens=131072 is larger than the profiled value"
        " -561981. Use the profiled value instead.\n"
    )
    left = rows(log)["left_bytes"]["logged"]
    assert left == -561_981 * 61 * 576 * 2


def test_weights_that_leave_nothing_of_the_fraction_are_a_failure() -> None:
    """SemiAnalysisAI/InferenceX#2128."""
    log = (
        "sglang serve --model-path deepseek-ai/DeepSeek-V4-Pro --tp 8 --mem-fraction-static 0.88\n"
        "Load weight end. quant=fp8, fmt=e4m3, avail mem=12.25 GB, mem usage=125.65 GB.\n"
        "ValueError: Loaded weights leave no GPU memory for the KV cache under"
        " --mem-fraction-static=0.88.\n"
    )
    found = rows(log)
    assert found["failure"]["agrees"] is False
    left = 12.25 - (12.25 + 125.65) * (1 - 0.88)
    assert found["left_bytes"]["logged"] == round(left * _GIB)


_TRT = (
    "trtllm-serve Qwen/Qwen3-235B-A22B-FP8 --tp 8 --ep 8\n"
    "[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: Executor"
    " creation failed due to insufficient GPU memory.\n\n"
    "The following component could not be created: KV cache\n"
    "Total GPU memory (GiB): 140.06\n"
    "Free GPU memory before component creation attempt (GiB): 108.86\n\n"
    "Model: 139.55 / 110.70\n"
)


def test_an_executor_without_memory_says_for_what() -> None:
    """NVIDIA/TensorRT-LLM#5872: by our reckoning it fits, so that more devices are not the cure."""
    found = rows(_TRT)
    assert "108.86 GiB were free for KV cache" in found["failure"]["why"]
    assert "by our reckoning it fits" in found["failure"]["why"]
    assert not [name for name in found if name.startswith("change_")]
    assert "Model 28.85 GiB logged" in _words(_TRT)


def test_a_cache_below_one_sequence_is_a_failure_of_the_older_runtime() -> None:
    """NVIDIA/TensorRT-LLM#542."""
    log = (
        "[TensorRT-LLM][ERROR] maxTokensInPagedKvCache must be large enough to process at least 1"
        " sequence to completion (i.e. must be larger than beam_width * tokensPerBlock *"
        " maxBlocksPerSeq)\n"
    )
    assert "one request of the longest context needs more than is left" in _words(log)


def test_what_failed_before_another_attempt_does_not_count() -> None:
    """ollama/ollama#11090: it tries again with fewer layers on the device."""
    log = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 132.81 MiB on device 0: cudaMalloc"
        " failed: out of memory\n"
        'msg=load request="{Commit:false Parallel:2 KvSize:128000 KvCacheType:q8_0 NumThreads:8}"\n'
        'level=INFO source=ggml.go:340 msg="model weights" buffer=CUDA1 size="14.8 GiB"\n'
        'level=INFO source=ggml.go:340 msg="model weights" buffer=CUDA0 size="8.6 GiB"\n'
    )
    found = rows(log, "--model", "qwen3-32b", "--dtype", "q8_0")
    assert "failure" not in found
    assert found["weights_bytes"]["logged"] == round(23.4 * _GIB)


def test_figures_tell_the_version_that_no_line_names() -> None:
    """noonghunna/club-3090#594: 1.1453 requests of 262,144 tokens, as of versions to 0.26."""
    log = (
        "(APIServer pid=1) INFO non-default args: {'model': '~/.cache/qwen3.6-27b-fp8', 'dtype':"
        " 'bfloat16', 'max_model_len': 262144, 'quantization': 'fp8', 'tensor_parallel_size': 2,"
        " 'kv_cache_dtype': 'fp8', 'enable_prefix_caching': True, 'max_num_batched_tokens': 8192,"
        " 'max_num_seqs': 2, 'speculative_config': {'method': 'mtp', 'num_speculative_tokens':"
        " 3}}\n"
        "(Worker_TP0 pid=89) INFO [gpu_worker.py:508] Available KV cache memory: 5.33 GiB\n"
        "(EngineCore pid=80) INFO GPU KV cache size: 300,220 tokens\n"
        "(EngineCore pid=80) INFO Maximum concurrency for 262,144 tokens per request: 1.15x\n"
    )
    found = rows(log)
    assert found["kv_tokens"]["agrees"] is True and found["concurrency"]["agrees"] is True
    assert "names no version: its figures follow from the rules of 0.26.0" in _words(log)
    assert rows(log, "--engine-version", "0.33.0")["kv_tokens"]["agrees"] is False


@pytest.mark.parametrize(("tokens", "agrees"), [(178_880, None), (160_000, False)])
def test_a_rank_that_logs_nothing_may_have_had_a_little_less(
    tokens: int, agrees: bool | None
) -> None:
    """vllm-project/vllm#21348: 94 layers x 2 x 128 x 2 B a token on each of four ranks: 8.02 GiB
    where one logs 8.11."""
    log = (
        "vllm serve /path/to/Qwen3-235B-A22B-FP8 --tensor-parallel-size 4\n"
        f"Available KV cache memory: 8.11 GiB\nGPU KV cache size: {tokens:,} tokens\n"
    )
    assert rows(log)["kv_tokens"]["agrees"] is agrees
    alone = log.replace("--tensor-parallel-size 4", "--tensor-parallel-size 1")
    assert rows(alone)["kv_tokens"]["agrees"] is False


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("llama3.1:8b", "meta-llama/Llama-3.1-8B"),
        ("qwen2.5-coder:7b-instruct-q8_0", "Qwen/Qwen2.5-7B-Instruct"),
        ("cyankiwi/gemma-4-26B-A4B-it-qat-AWQ-INT4", "google/gemma-4-26B-A4B"),
        ("/srv/hub/Qwen3-Coder-480B-A35B-Instruct-w8a8-QuaRot", "Qwen3-Coder-480B-A35B-Instruct"),
    ],
)
def test_names_of_tags_and_of_fine_tunes_are_known(name: str, known: str) -> None:
    log = vllm("0.10.1", name, 4096, "INFO Available KV cache memory: 3.00 GiB")
    assert f": {known}" in _words(log) or f"/{known}" in _words(log)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-Math-Next", "some/coder-7b", "math"])
def test_names_that_are_nearly_another_models_are_not_taken_for_it(name: str) -> None:
    log = vllm("0.10.1", f"/models/{name}", 4096, "INFO Available KV cache memory: 3.00 GiB")
    assert "not known here" in _words(log)


def test_a_device_that_is_full_without_more_words_is_a_failure() -> None:
    log = vllm("0.10.1", "Qwen/Qwen3-8B", 8192, "torch.AcceleratorError: CUDA error: out of memory")
    assert "failure" in rows(log)
    old = (
        "RuntimeError: NPU out of memory. Tried to allocate 140.00 MiB (NPU 0; 29.50 GiB total"
        " capacity; 26.96 GiB already allocated; 26.96 GiB current active; 117.92 MiB free; 27.34"
        " GiB reserved in total by PyTorch)"
    )
    found = rows(vllm("0.10.1", "Qwen/Qwen3-8B", 8192, old))
    assert "0.12 of 29.50 GiB were free" in found["failure"]["why"]


def test_an_error_of_windows_lines_and_prefixes_is_read() -> None:
    lines = vllm("0.15.2", "Qwen/Qwen3-8B", 40960, too_long(40960, "5.63", "3.00", 21824))
    log = "".join(f"vllm-0  | {line}\r\n" for line in lines.splitlines())
    found = rows(log)
    assert found["needed_bytes"]["agrees"] is True
    assert found["largest_context"]["logged"] == 21824
    assert out_of_memory("1 GiB", "2 GiB", "0 GiB", "2 GiB") not in log


_BENCH = (
    "[TensorRT-LLM] TensorRT-LLM version: 0.16.0\n"
    "[TensorRT-LLM][INFO] MPI size: 8, MPI local size: 8, rank: 4\n"
    "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10"
    " GiB, available: 61.38 GiB\n"
    "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10"
    " GiB, available: 57.87 GiB\n"
    "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 42668\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 52.08 GiB for max tokens in paged KV cache"
    " (2730752).\n"
    "[TensorRT-LLM][INFO] Number of tokens per block: 64.\n"
    "Model:\t\t\tmeta-llama/Llama-3.1-70B-Instruct\n"
)


def test_ranks_of_mpi_share_the_model_and_the_least_memory_decides() -> None:
    """shaamil101-etched/trtllm-benchmarks: 80 layers x 2 x 128 x 1 B on each of eight ranks."""
    found = rows(_BENCH)
    assert found["available_kv_bytes"]["predicted"] == round(57.87 * 0.9 * _GIB)
    assert found["available_kv_bytes"]["agrees"] is True
    assert "agrees with --kv-dtype fp8" in found["kv_tokens"]["why"]
    built = "KV Cache Dtype:\t\tFP8\nQuantization:\t\tFP8\nTP Size:\t\t8\nPP Size:\t\t1\n"
    found = rows(_BENCH + built)
    assert found["kv_tokens"]["agrees"] is True and found["num_blocks"]["agrees"] is True


def test_the_cache_of_the_profiled_step_is_made_anew() -> None:
    """faradawn/bench3: 1,088 tokens while memory was profiled, 900,800 after."""
    log = (
        "trtllm-serve meta-llama/Meta-Llama-3-8B-Instruct\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.13 GiB for max tokens in paged KV cache"
        " (1088).\n"
        "[12/07/2025-00:21:00] [TRT-LLM] [I] Peak memory during memory usage profiling (torch +"
        " non-torch): 17.76 GiB, available KV cache memory when calculating max tokens: 109.96 GiB,"
        " fraction is set 0.9, kv size is 131072. device total memory 139.80 GiB\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 109.96 GiB for max tokens in paged KV"
        " cache (900800).\n"
    )
    found = rows(log)
    assert found["kv_tokens"]["logged"] == 900_800
    assert found["kv_tokens"]["agrees"] is True
    assert found["available_kv_bytes"]["agrees"] is True


def test_functions_of_another_engine_do_not_say_where_a_start_failed() -> None:
    """apollo-mg/Project-Apollo: torch's compiler calls `forward` in the profiled step."""
    log = vllm(
        *("0.14.0", "Qwen/Qwen3-8B", 8192),
        "INFO Model loading took 15.27 GiB memory",
        '  File "gpu_model_runner.py", line 4543, in profile_run',
        '  File "torch/_dynamo/eval_frame.py", line 1, in forward',
        "torch._inductor.exc.InductorError: OutOfMemoryError: HIP out of memory. Tried to allocate"
        " 80.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which 0 bytes is free.",
    )
    assert "in the profiled step" in rows(log)["failure"]["why"]


def test_sizes_of_reads_are_no_blocks() -> None:
    """LukeJYK/AutoScientists: files are read ahead in pieces of 16 MiB."""
    log = vllm(
        *("0.26.1", "Qwen/Qwen3-Coder-30B-A3B-Instruct", 131072),
        "INFO [weight_utils.py:829] Prefetching checkpoint files into page cache started (in"
        " background, num_threads=8, block_size=16777216 bytes)",
        "INFO Available KV cache memory: 13.84 GiB",
        "INFO GPU KV cache size: 151,216 tokens",
    )
    assert rows(log)["kv_tokens"]["agrees"] is True


def test_another_model_of_a_later_start_has_a_name_of_its_own() -> None:
    """Nithin2311/grpo-machine-unlearning: what is only a path is not the model before it."""
    log = (
        'msg="starting runner" cmd="ollama runner --model /srv/blobs/sha256-ac3d --port 1"\n'
        "print_info: general.name     = Qwen3 8B\n"
        "llama_kv_cache: size = 1152.00 MiB (  8192 cells,  36 layers,  1/1 seqs)\n"
        'msg="starting runner" cmd="ollama runner --model /srv/blobs/sha256-dec5 --port 2"\n'
        'msg="kv cache" device=CUDA0 size="2.2 GiB"\n'
    )
    result = reconcile(log)
    assert result.exit_code == 2
    assert "sha256-dec5" in result.output


def test_weights_that_nothing_holds_say_so() -> None:
    """ShrijithSM/explainablity: 14.25 GiB on a device of 6."""
    log = vllm(
        *("0.16.0", "Qwen/Qwen2.5-7B-Instruct", 2048),
        '  File "gpu_model_runner.py", line 4220, in load_model',
        out_of_memory("260.00 MiB", "6.00 GiB", "0 bytes", "17179869184.00 GiB"),
    )
    why = rows(log)["failure"]["why"]
    assert "while the weights were loaded" in why
    assert "a larger device" in why


def test_a_model_that_pools_is_loaded_without_its_head() -> None:
    """WaroonRagwongsiri/SuperAi-SS6-Level2-Hack4: 8.19 B parameters less 151,665 x 4,096."""
    log = vllm(
        *("0.22.0", "Qwen/Qwen3-Embedding-8B", 8192), "INFO Model loading took 14.11 GiB memory"
    )
    assert rows(log)["weights_bytes"]["agrees"] is False
    pools = "INFO Resolved `--runner auto` to `--runner pooling`.\n"
    assert rows(pools + log)["weights_bytes"]["agrees"] is True


def test_a_name_that_no_file_may_have_is_none() -> None:
    log = vllm("0.10.1", "/models/a\x00b", 4096, "INFO Available KV cache memory: 3.00 GiB")
    assert "the log names no model" in _words(log)


def test_an_error_that_only_older_versions_have_tells_the_version() -> None:
    """vllm-project/vllm#6746: all of 4,962 blocks of 16 tokens are for requests."""
    log = (
        "vllm serve meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 --tensor-parallel-size 8\n"
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens"
        " that can be stored in KV cache (79392). Try increasing `gpu_memory_utilization`\n"
    )
    assert rows(log)["largest_context"]["predicted"] == 79_392
    assert "does what 0.8.5 did" in _words(log)
