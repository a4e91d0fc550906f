"""`reconcile`: start-up logs read and recomputed, whole and in pieces, honest and hostile."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount
from headcount.cli import main
from headcount.model.limits import LOG_LINE_BYTES
from headcount.plan.engines.registry import started
from headcount.plan.engines.start_log import start_logs
from headcount.plan.reconcile.log import log_of_lines, read_log
from headcount.plan.reconcile.reading import read_lines
from start_up_lines import rows, vllm
from start_up_logs import RECORDS, Record, carries_enough, ids, vllm_log

GIB = 2**30


def run(log: str, *args: str) -> Result:
    return CliRunner().invoke(main, ["reconcile", "-", "--details", *args], input=log)


def figures(log: str, *args: str) -> dict[str, Any]:
    result = run(log, *args, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)["figures"]
    assert all(
        list(row) == ["figure", "logged", "predicted", "low", "high", "agrees", "why"]
        for row in rows
    )
    return {row["figure"]: row for row in rows}


def options(record: Record) -> list[str]:
    """What the log does not say."""
    offline = ["--offline"] if record.get("usage") == "offline" else []
    model = ["--model", record["catalogue"]] if "," not in record["logged_model"] else []
    device = ["--device", record["device"]] if record["device"] else []
    version = [] if record["vllm"][0].isdigit() else ["--engine-version", record["vllm"]]
    return [*model, *device, *version, *offline]


NAMED = [r for r in RECORDS if r["catalogue"] and "config_changes" not in r]
KNOWN = [r for r in NAMED if r.get("kv_tokens")]


@pytest.mark.parametrize("record", KNOWN, ids=ids(KNOWN))
def test_tokens_blocks_and_concurrency_of_real_logs_agree(record: Record) -> None:
    found = figures(vllm_log(record), *options(record))
    for name, key in (
        ("kv_tokens", "kv_tokens"),
        ("num_blocks", "num_gpu_blocks"),
        ("concurrency", "concurrency"),
    ):
        assert (name in found) == (key in record)
        if name in found:
            row = found[name]
            assert row["agrees"] is True, row
            assert row["low"] <= row["logged"] <= row["high"]
            assert row["low"] <= row["predicted"] <= row["high"]


ENOUGH = [r for r in NAMED if carries_enough(r) is None]


@pytest.mark.parametrize("record", ENOUGH, ids=ids(ENOUGH))
def test_weights_and_available_memory_of_real_logs_agree(record: Record) -> None:
    found = figures(vllm_log(record), *options(record))
    assert found["available_kv_bytes"]["agrees"] is True, found["available_kv_bytes"]
    if "weights_bytes" in found:
        assert found["weights_bytes"]["agrees"] is True, found["weights_bytes"]


def test_a_log_names_model_and_version_and_the_last_start_counts() -> None:
    (record,) = (r for r in RECORDS if r["id"] == "qwen3-8b-a100-40g-v092")
    first = vllm_log(record).replace("136,080", "999,999").replace("18.69", "1.00")
    found = figures(first + vllm_log(record))
    assert found["kv_tokens"]["agrees"] is True
    assert found["available_kv_bytes"]["agrees"] is None
    assert "--device" in found["available_kv_bytes"]["why"]


FRAGMENT = """(Worker_TP0) INFO [gpu_worker.py:298] Available KV cache memory: 18.70 GiB
(Worker_TP1) INFO [gpu_worker.py:298] Available KV cache memory: 18.69 GiB
(EngineCore) INFO [kv_cache_utils.py:864] GPU KV cache size: 136,080 tokens
(EngineCore) INFO Maximum concurrency for 40,960 tokens per request: 3.32x
"""
SAID = ("--model", "qwen3-8b", "--engine-version", "0.9.2")


def test_a_fragment_needs_what_it_does_not_say() -> None:
    found = figures(FRAGMENT, *SAID)
    assert found["available_kv_bytes"]["logged"] == round(18.69 * GIB)  # the least of the ranks
    assert found["kv_tokens"]["agrees"] and found["concurrency"]["agrees"]
    nameless = run(FRAGMENT)
    assert nameless.exit_code == 2
    assert "--model" in nameless.output


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--kv-dtype", "fp8"), "agrees with --kv-dtype auto"),
        (("--tp", "2"), "agrees with --tp 1"),
    ],
)
def test_a_wrong_setting_is_found(args: tuple[str, ...], reason: str) -> None:
    row = figures(FRAGMENT, *SAID, *args)["kv_tokens"]
    assert row["agrees"] is False
    assert row["why"].startswith(reason)
    assert run(FRAGMENT, *SAID, *args, "--exit-code").exit_code == 1


def test_a_wrong_version_of_the_rules_is_found() -> None:
    (record,) = (r for r in RECORDS if r["id"].startswith("gemma3-27b"))
    row = figures(vllm_log(record), *options(record), "--engine-version", "0.33")["kv_tokens"]
    assert row["agrees"] is False
    assert row["why"].startswith("agrees with the rules of 0.11.0")


def test_windows_that_were_given_as_much_as_full_layers_are_found() -> None:
    """All 62 layers of Gemma-3 as full ones: 10 GiB are 21,136 tokens."""
    log = "Available KV cache memory: 10.00 GiB\nGPU KV cache size: 21,136 tokens\n"
    args = ("--model", "gemma-3-27b", "--engine-version", "0.11.0", "--context", "4096")
    row = figures(log, *args)["kv_tokens"]
    assert row["agrees"] is False
    assert row["why"].startswith("agrees with --disable-hybrid-kv-cache-manager")
    said = "Hybrid KV cache manager is disabled for this hybrid model\n"
    assert figures(said + log, *args)["kv_tokens"]["agrees"] is True


def test_a_utilisation_that_the_log_does_not_say_is_worked_out() -> None:
    (record,) = (r for r in RECORDS if r["id"].startswith("exaone4"))
    row = figures(vllm_log(record), *options(record))["available_kv_bytes"]
    assert row["agrees"] is False
    assert "which the log does not say, would have to be 0.9" in row["why"]


def test_fp8_weights_of_a_bf16_model_are_told() -> None:
    log = FRAGMENT + "Model loading took 7.9 GiB and 3 seconds\n"
    row = figures(log, *SAID)["weights_bytes"]
    assert row["agrees"] is False
    assert row["why"].startswith("half: the weights are stored in 8 bit")


SGLANG = """[2026-01-02 10:00:00] server_args=ServerArgs(model_path='/models/Qwen3-235B-A22B-FP8', \
tokenizer_path='x', context_length=None, mem_fraction_static=0.93, tp_size=4, page_size=1, \
kv_cache_dtype='auto')
[TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, avail mem=21.45 GB, \
mem usage=55.64 GB.
[TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
[TP0] max_total_num_tokens=367404, chunked_prefill_size=8192, context_len=40960
"""


def test_sglang_logs_keys_and_values_apart() -> None:
    found = figures(SGLANG, "--device", "h100")
    assert found["kv_tokens"]["agrees"] is True
    assert found["kv_tokens"]["logged"] == 367_404
    assert found["available_kv_bytes"]["logged"] == round(16.46 * GIB)
    assert found["weights_bytes"]["predicted"] == pytest.approx(55.64 * GIB, rel=0.03)
    assert "num_blocks" not in found


def test_sglang_latents_are_one_size() -> None:
    log = "KV Cache is allocated. #tokens: 300000, KV size: 19.63 GB\ntp_size=8\n"
    row = figures(log, "--model", "deepseek-v3", "--context", "32k")["kv_tokens"]
    assert row["agrees"] is True


@pytest.mark.parametrize("log", ["", "hello\n", "GPU KV cache size: many tokens\n", "\x00\xff" * 9])
def test_a_log_without_figures_says_what_was_looked_for(log: str) -> None:
    result = run(log, "--model", "gpt2")
    assert result.exit_code == 2
    assert "none of the figures" in result.output
    assert "`GPU KV cache size`" in result.output
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["reconcile", str(tmp_path / "no.log")])
    assert result.exit_code == 2
    assert "cannot be read" in result.output


@pytest.mark.parametrize(
    "value",
    [
        "9" * 31,
        "0",
        "-1.0",
        "1,2,3",
        "1e99",
        "nan",
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: {} GiB",
        "GPU KV cache size: {} tokens",
        "Maximum concurrency for {} tokens per request: 2.00x",
        "Maximum concurrency for 100 tokens per request: {}x",
        "# GPU blocks: {}",
        "Model loading took {} GiB and 1 seconds",
        "tensor_parallel_size={}",
        "pipeline_parallel_size={}",
        "prefill_context_parallel_size={}",
        "decode_context_parallel_size={}",
        "max_num_batched_tokens={}",
        "block_size={}",
        "gpu_memory_utilization={}",
        "max_seq_len={}",
        "max_num_seqs={}",
        "Free memory on device ({}/{} GiB) on startup",
    ],
)
def test_hostile_values_give_a_report_or_an_error(line: str, value: str) -> None:
    result = run(FRAGMENT + line.format(value, value) + "\n", *SAID)
    assert result.exit_code in (0, 2), result.output
    assert "Traceback" not in result.output
    assert not isinstance(result.exception, (ValueError, OverflowError, ZeroDivisionError))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*FRAGMENT.split(), *SGLANG.split(), "=", "(", "9" * 30])))
def test_any_order_of_words_is_read(words: list[str]) -> None:
    log = log_of_lines([" ".join(words)])
    assert all(isinstance(value, float) for value in log.figures.values())


def test_a_line_without_end_is_cut_and_the_rest_skipped(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(
        b"x" * (5 * LOG_LINE_BYTES.most) + b" GPU KV cache size: 1 tokens\n" + b"last\n"
    )
    lines = list(read_lines(str(path)))
    assert [len(line) for line in lines] == [LOG_LINE_BYTES.most, len("last\n")]


def test_no_log_is_held_against_a_plan_without_an_engine() -> None:
    result = run(FRAGMENT, *SAID, "--engine", "generic")
    assert result.exit_code == 2
    assert "'generic' is not one of" in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=12) INFO 11-02 10:00:00 [x.py:{}] dtype=" + "a=b, 'c': " * 20,
        'INFO: 127.0.0.1:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "INFO [loggers.py:{}] Engine 000: Running: 12 reqs, GPU KV cache usage: 12.3%",
    ],
)
def test_many_lines_are_read_in_little_time(tmp_path: Path, line: str) -> None:
    """256 MB in some ten seconds: a twentieth of it in some half of one, and six times that where a
    machine is busy."""
    path, size = tmp_path / "many.log", 256 * 10**6 // 20
    lines = (line.format(n) + "\n" for n in range(size // len(line)))
    path.write_text("".join(lines) + FRAGMENT, encoding="utf-8")
    before = time.process_time()
    log = read_log(str(path))
    assert time.process_time() - before < 3
    assert log.figures["kv_tokens"] == 136_080


def test_blocks_overridden_while_graphs_are_profiled_are_no_figure() -> None:
    line = "Overriding num_gpu_blocks={} with num_gpu_blocks_override=512\n"
    found = figures(line.format(0) + FRAGMENT, "--model", "qwen3-8b", "--engine-version", "0.9.2")
    assert "num_blocks" not in found
    assert found["kv_tokens"]["agrees"] is True
    args = ("--model", "qwen3-8b", "--engine-version", "0.9.2")
    assert "overrides the number of blocks (512)" in run(line.format(8505) + FRAGMENT, *args).output


def test_figures_pasted_before_the_line_that_begins_a_start_count() -> None:
    start = "Initializing a V1 LLM engine (v0.9.2) with config: model='Qwen/Qwen3-8B'\n"
    assert figures(FRAGMENT + start)["kv_tokens"]["agrees"] is True


def test_what_an_earlier_start_found_out_does_not_hold_for_the_next() -> None:
    earlier = "Using FlashInfer for top-p & top-k sampling.\nHybrid KV cache manager is disabled\n"
    start = "Initializing a V1 LLM engine (v0.9.2) with config: model='Qwen/Qwen3-8B'\n"
    log = log_of_lines((earlier + start + FRAGMENT).splitlines())
    assert not {"sampler", "disable_hybrid_kv_cache_manager"} & set(log.settings)


def test_one_line_with_both_counts_and_the_memory_at_the_end_of_a_start() -> None:
    log = (
        "Initializing a V1 LLM engine (v0.30.0) with config: model='Qwen/Qwen3-8B'\n"
        "INFO GPU KV cache size: 136,096 tokens, Maximum concurrency for 40,960 tokens per request:"
        " 3.32x\n"
        "INFO Free memory on device (39.2/39.49 GiB) on startup. Desired GPU memory utilization is"
        " (0.92, 36.33 GiB). Current kv cache memory in use is 18.69 GiB.\n"
    )
    found = figures(log)
    assert found["kv_tokens"]["agrees"] is True
    assert found["concurrency"]["agrees"] is True


def test_states_of_cached_prefixes_are_read_from_the_log() -> None:
    log = (
        "Mamba cache mode is set to 'align' for Qwen3_5MoeForConditionalGeneration by default\n"
        "Initializing a V1 LLM engine (v0.18.1) with config: model='Qwen/Qwen3.5-35B-A3B'\n"
        "Available KV cache memory: 55.72 GiB\n"
        "Maximum concurrency for 262,144 tokens per request: {}x\n"
    )
    assert figures(log.format("10.85"))["concurrency"]["agrees"] is True
    assert "--mamba-cache-mode none" in figures(log.format("10.98"))["concurrency"]["why"]


def test_a_speculating_start_has_a_note() -> None:
    text = FRAGMENT + "speculative_config={'method': 'mtp', 'num_speculative_tokens': 3}\n"
    assert "speculates" in run(text, "--model", "qwen3-8b").output


def test_a_method_without_layers_in_the_config_is_a_note() -> None:
    text = FRAGMENT + "speculative_config={'method': 'mtp', 'num_speculative_tokens': 3}\n"
    result = run(text, "--model", "qwen3-8b", "--device", "l4")
    assert result.exit_code in (0, 1) and "Error" not in result.output
    assert "names no layers that predict further tokens" in result.output


def test_pools_of_sglang_are_told_from_those_of_ranks_and_of_a_draft_model() -> None:
    line = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: {}, K size: {} GB, V size: {} GB"
    lines = [line.format(1000, 5.22, 5.22), line.format(1000, 5.22, 5.22)]
    draft, window = line.format(1000, 0.33, 0.33), line.format(800, 1.5, 1.5)
    log = log_of_lines([*lines, draft])
    assert (log.figures["kv_tokens"], log.figures["available_gib"]) == (1000, 10.44)
    both = log_of_lines([*lines, draft, window])
    assert (both.figures["kv_tokens"], both.figures["available_gib"]) == (1000, 13.44)
    latent = log_of_lines(["KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB"])
    assert (latent.figures["kv_tokens"], latent.figures["available_gib"]) == (383872, 19.36)


def test_a_pool_beside_recurrent_state_is_that_of_keys_and_values() -> None:
    """A start of Qwen3.8-27B, of the same geometry, on SGLang 0.5.17."""
    log = (
        "Mamba Cache is allocated. max_mamba_cache_size: 43, ssm_state size: 3.09GB\n"
        "KV Cache is allocated. #tokens: 171008, K size: 5.22 GB, V size: 5.22 GB\n"
    )
    assert figures(log, "--model", "qwen3.5-27b")["kv_tokens"]["agrees"] is True


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_a_log_as_powershell_writes_it_is_read(tmp_path: Path, encoding: str) -> None:
    text = ("\ufeff" if encoding == "utf-16-be" else "") + FRAGMENT.replace("\n", "\r\n")
    (tmp_path / "log").write_bytes(text.encode(encoding))
    log = read_log(str(tmp_path / "log"))
    assert log.figures["kv_tokens"] == 136080
    assert log.figures["available_gib"] == 18.69


def test_engines_are_known_by_their_logs_alone() -> None:
    """One name of a setting means one thing, and `reconcile` names no engine."""
    logs = start_logs()
    meanings = {(name, ours) for log in logs.values() for name, ours in log.settings.items()}
    assert len(meanings) == len(dict(meanings))
    assert all(name in started() and log.engine == name for name, log in logs.items())
    folder = Path(headcount.__file__).parent / "plan" / "reconcile"
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py")).lower()
    assert not [name for name in started() if name != "transformers" and name in code]


@pytest.mark.parametrize(
    ("said", "agrees"),
    [("24.27x", True), ("24.26x", False)],
)
def test_counts_of_a_log_that_says_no_memory_are_held_against_each_other(
    said: str, agrees: bool
) -> None:
    """198,784 tokens are 24.2656 requests of 8,192 (a published start of 0.8.5, without blocks)."""
    log = (
        vllm("0.8.5", "Qwen/Qwen3-30B-A3B", 8192, tp=4)
        + "INFO GPU KV cache size: 198,784 tokens\n"
        + f"INFO Maximum concurrency for 8,192 tokens per request: {said}\n"
    )
    found = rows(log)
    assert found["kv_tokens"]["agrees"] is None
    assert found["concurrency"]["predicted"] == 24.27
    assert found["concurrency"]["agrees"] is agrees
