"""`reconcile` of starts that failed: what was needed, what there was, and what would do.

Sizes are those of public reports: vllm-project/vllm issues 34076, 2418, 27508, 15105 and others.
Each change that is offered is planned again here, by the options of its own command.
"""

import json
import re
from typing import Any

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import NO_RELEASES, find_engine
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest
from start_up_lines import out_of_memory, reconcile, rows, too_long, vllm

GIB, H100 = 2**30, find_device("h100")


def option(command: str, name: str) -> str:
    found = re.search(rf"{name} (\S+)", command)
    assert found, command
    return found[1]


def plan(name: str, **request: Any) -> Plan:
    return plan_model(planned(audit_model(name)), PlanRequest(engine="vllm", **request))


def test_a_request_that_is_too_long_is_explained_from_its_line_alone() -> None:
    """23 layers of two stages: in 0.15 each stage had to hold a request of all layers."""
    log = vllm(
        *("0.15.2rc1", "./Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", 262144),
        *("(Worker_PP0 pid=1) INFO Available KV cache memory: 3.18 GiB",),
        too_long(262144, "24.0", "3.18", 34736),
        more=", pipeline_parallel_size=2, quantization=fp8",
    )
    found = rows(log)
    assert found["needed_bytes"]["logged"] == found["needed_bytes"]["predicted"] == 24 * GIB
    assert found["needed_bytes"]["agrees"] is True
    assert found["left_bytes"]["logged"] == round(3.18 * GIB)
    assert found["largest_context"]["logged"] == found["largest_context"]["predicted"] == 34736
    change = found["change_context"]
    assert 34736 - 16 <= change["predicted"] <= 34736
    assert f"--max-model-len {change['predicted']}" in change["why"]
    assert "vllm serve ./Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8" in change["why"]


def test_every_change_that_is_offered_fits_when_it_is_planned() -> None:
    log = vllm(
        *("0.10.1", "Qwen/Qwen3-8B", 36864),
        "INFO Free memory on device (23.1/23.64 GiB) on startup",
        "INFO Model loading took 15.2683 GiB and 3 seconds",
        "INFO Available KV cache memory: 4.40 GiB",
        too_long(36864, "5.06", "4.40", 32048),
    )
    found = rows(log)
    assert found["largest_context"]["predicted"] == 32048
    changes = {name: row for name, row in found.items() if name.startswith("change_")}
    assert {"change_kv_dtype", "change_context", "change_utilisation"} <= set(changes)
    memory, version = round(4.40 * GIB), find_engine("vllm").releases.parse("0.10.1")
    shorter = int(option(changes["change_context"]["why"], "--max-model-len"))
    assert plan("qwen3-8b", version=version, kv_memory=memory, context=shorter).fits
    assert not plan("qwen3-8b", version=version, kv_memory=memory, context=shorter + 64).fits
    assert option(changes["change_kv_dtype"]["why"], "--kv-cache-dtype") == "fp8"
    assert plan("qwen3-8b", version=version, kv_memory=memory, context=36864, kv_dtype="fp8").fits
    share = float(option(changes["change_utilisation"]["why"], "--gpu-memory-utilization"))
    more = (share - 0.9) * 23.64 * GIB
    assert plan("qwen3-8b", version=version, kv_memory=int(memory + more), context=36864).fits
    assert not plan(
        "qwen3-8b",
        version=version,
        kv_memory=int(memory + more - 0.01 * 23.64 * GIB),
        context=36864,
    ).fits


def test_the_older_engine_counts_tokens() -> None:
    log = (
        "INFO llm_engine.py:70] Initializing an LLM engine (v0.6.0) with config:"
        " model='Qwen/Qwen1.5-7B-Chat', dtype=torch.bfloat16, max_seq_len=32768,"
        " tensor_parallel_size=1\n"
        "INFO # GPU blocks: 459, # CPU blocks: 512\n"
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens"
        " that can be stored in KV cache (7344). Try increasing `gpu_memory_utilization`\n"
    )
    found = rows(log)
    each = 2 * 32 * 32 * 128 * 2
    assert found["needed_bytes"]["logged"] == 32768 * each
    assert found["left_bytes"]["logged"] == 7344 * each
    assert found["largest_context"]["predicted"] == 7344
    assert found["change_context"]["predicted"] == 7344


def test_nothing_left_says_what_to_change() -> None:
    """gpt-oss-120b on one H100 (vllm-project/vllm#27508)."""
    log = vllm(
        *("0.10.1", "openai/gpt-oss-120b", 131072),
        "INFO Model loading took 65.9651 GiB and 3 seconds",
        "INFO Available KV cache memory: -2.14 GiB",
    )
    done = reconcile(log, "--device", "h100", "--exit-code")
    assert done.exit_code == 1
    assert "did not start" in done.output and "Too large        weights" in done.output
    found = rows(log, "--device", "h100")
    assert found["failure"]["agrees"] is False
    assert found["available_kv_bytes"]["logged"] == round(-2.14 * GIB)
    fewer = found["change_max_num_seqs"]
    assert option(fewer["why"], "--max-num-seqs") == str(fewer["predicted"])
    assert found["needed_bytes"]["logged"] > 2.14 * GIB
    assert "tp 2 (2 devices)" in done.output


def test_two_changes_are_offered_where_no_mild_one_does() -> None:
    """7 GiB of sampler are not enough for 6 GiB that are missing and 4.8 of a request."""
    log = vllm(
        *("0.10.1", "openai/gpt-oss-120b", 131072),
        "INFO Model loading took 65.9651 GiB and 3 seconds",
        "INFO Available KV cache memory: -6.00 GiB",
    )
    found = rows(log, "--device", "h100")
    assert not {"change_max_num_seqs", "change_utilisation"} & set(found)
    why = found["change_max_num_seqs_and_context"]["why"]
    sequences, context = option(why, "--max-num-seqs"), option(why, "--max-model-len")
    assert int(sequences) < 1024 and 2048 <= int(context) < 131072
    ten = {"device": H100, "version": NO_RELEASES.parse("0.10.1"), "context": 131072}
    freed = plan("gpt-oss-120b", max_num_seqs=int(sequences), **ten)
    left = freed.available_bytes - plan("gpt-oss-120b", **ten).available_bytes - 6 * GIB
    ten |= {"context": int(context), "max_num_seqs": int(sequences)}
    assert plan("gpt-oss-120b", kv_memory=left, **ten).fits


def test_weights_that_do_not_fit_want_more_devices() -> None:
    log = vllm(
        *("0.11.0", "meta-llama/Llama-3.1-70B-Instruct", 8192),
        out_of_memory("224.00 MiB", "79.25 GiB", "187.75 MiB", "79.05 GiB"),
    )
    found = rows(log)
    assert found["needed_bytes"]["logged"] == pytest.approx(70_553_706_496 * 2, rel=0.01)
    assert found["left_bytes"]["logged"] == round(79.25 * GIB)
    assert "while the weights were loaded" in found["failure"]["why"]
    tp = found["change_tp"]["predicted"]
    assert plan("llama-3.1-70b", tp=tp, device=H100, context=8192).fits


def test_a_device_that_others_hold_is_named_so() -> None:
    log = vllm(
        *("0.9.2", "Qwen/Qwen3-8B", 40960),
        "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU"
        " memory utilization (0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory"
        " used by other processes.",
    )
    found = rows(log)
    assert found["needed_bytes"]["logged"] == round(71.24 * GIB)
    assert found["left_bytes"]["logged"] == round(59.32 * GIB)
    assert found["change_utilisation"]["predicted"] == 0.74  # 59.32 of 79.15
    assert "19.83 GiB" in found["failure"]["why"]


def test_a_sampler_without_room_takes_fewer_sequences_or_less_for_the_cache() -> None:
    log = vllm(
        *("0.8.5", "Qwen/Qwen2.5-7B-Instruct", 32768),
        "INFO Model loading took 14.2717 GiB and 3 seconds",
        out_of_memory("298.00 MiB", "23.65 GiB", "98.25 MiB", "23.53 GiB"),
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests."
        " Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the"
        " engine.",
    )
    found = rows(log)
    assert "256 sequences" in found["failure"]["why"]
    short = (298 - 98.25) / 1024 / 23.65
    assert found["change_utilisation"]["predicted"] <= 0.90 - short
    assert found["change_max_num_seqs"]["predicted"] < 256


def test_memory_that_a_step_lacked_is_told_from_memory_for_weights() -> None:
    loaded = "INFO Model loading took 14.2717 GiB and 3 seconds"
    error = out_of_memory("270.00 MiB", "21.98 GiB", "156.94 MiB", "21.80 GiB")
    lines = vllm("0.8.5", "Qwen/Qwen2.5-7B-Instruct", 32768, loaded, error)
    assert "in the profiled step" in rows(lines)["failure"]["why"]
    traced = '  File "gpu_worker.py", line 1, in determine_available_memory\n'
    lines = vllm("0.8.5", "Qwen/Qwen2.5-7B-Instruct", 32768, traced + error)
    assert "in the profiled step" in rows(lines)["failure"]["why"]
    lines = vllm("0.8.5", "Qwen/Qwen2.5-7B-Instruct", 32768, error.replace("20.32 GiB", "12 GiB"))
    assert "while the weights were loaded" in rows(lines)["failure"]["why"]


def test_more_than_the_weights_was_not_allocated_while_they_were_loaded() -> None:
    """Qwen3-8B has 8,190,735,360 parameters of two bytes, 15.26 GiB; torch had 21.30."""
    error = out_of_memory("270.00 MiB", "21.98 GiB", "156.94 MiB", "21.80 GiB")
    log = vllm("0.19.0", "Qwen/Qwen3-8B", 32768, error.replace("20.32 GiB", "21.30 GiB"))
    found = rows(log, "--device", "l4")
    why = found["failure"]["why"]
    assert "21.30 GiB were allocated by PyTorch, of which weights take 15.2" in why
    assert "not known" in why and "while the weights" not in why
    assert found["needed_bytes"]["why"] != "weights"
    traced = log.replace("torch.OutOf", '  File "x.py", line 1, in load_model\ntorch.OutOf')
    assert "while the weights were loaded" in rows(traced, "--device", "l4")["failure"]["why"]


def test_a_log_without_a_known_model_is_explained_by_its_numbers() -> None:
    """A message that is broken over lines, as shells and dashboards do."""
    log = (
        "ValueError: To serve at least one request with the model's max seq len (1048576),\n"
        "22.5 GiB KV cache is needed, which is larger than the available KV cache memory"
        " (17.39 GiB).\n"
        "Based on the available memory, the estimated maximum model length is 810208.\n"
    )
    found = rows(log)
    assert found["largest_context"]["logged"] == 810208
    assert "810,208 tokens fit" in found["failure"]["why"]
    assert "--model NAME" in reconcile(log).output


def test_pools_without_room_say_so() -> None:
    """sgl-project/sglang#7691: less than nothing for the pool."""
    log = (
        "server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=1, mem_fraction_static=0.79)\n"
        "[TP0] Load weight end. type=Qwen3ForCausalLM, avail mem=16.73 GB, mem usage=61.59 GB.\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )
    found = rows(log)
    left = 16.73 - (16.73 + 61.59) * (1 - 0.79)
    assert found["left_bytes"]["logged"] == round(left * GIB)
    share = found["change_utilisation"]["predicted"]
    assert 0.79 < share <= 0.95
    assert f"--mem-fraction-static {share:g}" in found["change_utilisation"]["why"]


def test_a_start_that_came_up_in_the_end_did_not_fail() -> None:
    log = vllm(
        *("0.10.1", "Qwen/Qwen3-8B", 40960),
        out_of_memory("270.00 MiB", "39.49 GiB", "156.94 MiB", "39.30 GiB"),
        "INFO Available KV cache memory: 18.69 GiB",
        "INFO GPU KV cache size: 136,080 tokens",
        "INFO Application startup complete.",
    )
    assert "failure" not in rows(log)


def test_the_last_start_counts_for_failures_too() -> None:
    failed = vllm("0.10.1", "Qwen/Qwen3-8B", 40960, too_long(40960, "5.62", "4.40", 32048))
    came_up = vllm("0.10.1", "Qwen/Qwen3-8B", 8192, "INFO Available KV cache memory: 4.40 GiB")
    assert "failure" not in rows(failed + came_up)
    assert "failure" in rows(came_up + failed)


def test_a_cache_that_found_no_room_is_told_from_weights_and_steps() -> None:
    """23,871 MiB free, of which the weights on the device took 18,430."""
    log = (
        "ggml_cuda_init: found 1 CUDA devices:\n"
        "  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes\n"
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23871 MiB"
        " free\n"
        "llama_model_loader: loaded meta data with 32 key-value pairs and 707 tensors from"
        " /models/Qwen3-32B-Q4_K_M.gguf (version GGUF V3)\n"
        "load_tensors:        CUDA0 model buffer size = 18430.00 MiB\n"
        "load_tensors:   CPU_Mapped model buffer size =   417.30 MiB\n"
        "llama_context: n_ctx         = 40960\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 10240.00 MiB on device 0:"
        " cudaMalloc failed: out of memory\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv"
        " cache\n"
    )
    found = rows(log)
    assert "the cache of 10.00 GiB found no room" in found["failure"]["why"]
    assert found["left_bytes"]["logged"] == (23871 - 18430) * 2**20
    assert found["change_kv_dtype"]["predicted"] == "q4_0"  # 10,240 MiB are 2,880 so
    assert found["change_context"]["predicted"] < 40960
    assert found["weights_bytes"]["agrees"] is True


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "ValueError: model requires more system memory (57.1 GiB) than is available (30.7 GiB)",
            "57.10 GiB of the host's memory",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0:"
            " cudaMalloc failed: out of memory",
            "the weights of 9.00 GiB found no room",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5030.00 MiB on device 0:"
            " cudaMalloc failed: out of memory\n"
            "llama_new_context_with_model: failed to allocate compute buffers",
            "a step's compute buffer of 4.91 GiB found no room",
        ),
        (
            "RuntimeError: [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMalloc(ptr, n): out of"
            " memory",
            "the device was full",
        ),
        (
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other"
            " processes. pre_model_load_memory=13.53, local_gpu_memory=23.09,",
            "13.53 GiB on one, 23.09 on another",
        ),
        (
            "AssertionError: Error in memory profiling. Initial free memory 10.5 GiB, current free"
            " memory 12.25 GiB. This happens when other processes",
            "another process gave memory back",
        ),
    ],
)
def test_other_ends_of_a_start_are_read(line: str, words: str) -> None:
    done = reconcile(line + "\n")
    assert done.exit_code == 0, done.output
    assert words in done.output


@pytest.mark.parametrize("value", ["9" * 31, "0", "-1.0", "1e99", "nan"])
@pytest.mark.parametrize(
    "line",
    [
        "max seq len ({0}), ({0} GiB KV cache is needed, which is larger than the available KV"
        " cache memory ({0} GiB). the estimated maximum model length is {0}",
        "max seq len ({0}) is larger than the maximum number of tokens that can be stored in KV"
        " cache ({0})",
        "Free memory on device ({0}/{0} GiB) on startup is less than desired GPU memory utilization"
        " ({0}, {0} GiB)",
        "CUDA out of memory. Tried to allocate {0} GiB. GPU 0 has a total capacity of {0} GiB of"
        " which {0} GiB is free.",
        "when warming up sampler with {0} dummy requests",
        "is larger than the profiled value -{0}",
        "llama_kv_cache: size = {0} MiB ( {0} cells,  32 layers,  {0}/{0} seqs)",
        'msg="kv cache" device=CUDA0 size="{0} GiB"',
        "Allocated {0} GiB for max tokens in paged KV cache ({0})",
        "kv size per token is {0}",
    ],
)
def test_hostile_numbers_of_a_failure_give_a_report_or_an_error(line: str, value: str) -> None:
    done = reconcile(line.format(value) + "\n", "--model", "qwen3-8b", "--device", "h100")
    assert done.exit_code in (0, 2), done.output
    assert not isinstance(done.exception, (ValueError, OverflowError, ZeroDivisionError, KeyError))


def test_a_failure_has_the_keys_of_a_figure() -> None:
    log = vllm("0.10.1", "Qwen/Qwen3-8B", 40960, too_long(40960, "5.62", "4.40", 32048))
    for row in json.loads(reconcile(log, "--format", "json").output)["figures"]:
        assert list(row) == ["figure", "logged", "predicted", "low", "high", "agrees", "why"]
