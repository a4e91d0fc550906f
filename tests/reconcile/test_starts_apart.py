"""Logs of several starts, of several engines, coloured, and packed."""

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.reconcile.log import log_of_lines, read_log
from lowered_limits import Lower
from start_up_lines import reconcile, vllm

FIRST = vllm(
    *("0.11.0", "Qwen/Qwen3-8B", 40960),
    "INFO Available KV cache memory: 18.70 GiB",
    more=", quantization=fp8, kv_cache_dtype=fp8_e4m3",
)
SECOND = vllm(
    *("0.19.0", "Qwen/Qwen3-14B", 32768), "INFO Available KV cache memory: 30.10 GiB", tp=2
)
ARGUMENTS = "INFO [utils.py] non-default args: {'gpu_memory_utilization': 0.5, 'max_num_seqs': 64}"
SGLANG = (
    "[2026-01-01] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', context_length=32768,"
    " tp_size=1, mem_fraction_static=0.8)\n"
    "[2026-01-01] KV Cache is allocated. #tokens: 100000, K size: 6.87 GB, V size: 6.87 GB\n"
    "[2026-01-01] max_total_num_tokens=100000, context_len=32768\n"
)


def test_what_an_earlier_start_was_told_does_not_hold_for_the_last() -> None:
    log = log_of_lines(f"{ARGUMENTS}\n{FIRST}{SECOND}".splitlines())
    assert log.settings["model"] == "Qwen/Qwen3-14B"
    assert (log.settings["tp"], log.settings["version"]) == (2, "0.19.0")
    assert not {"utilisation", "max_num_seqs", "quantization", "kv_dtype"} & set(log.settings)


def test_the_arguments_of_the_last_start_are_its_own_where_they_stand_before_it() -> None:
    log = log_of_lines(f"{FIRST}{ARGUMENTS}\n{SECOND}".splitlines())
    assert (log.settings["utilisation"], log.settings["max_num_seqs"]) == (0.5, 64)
    assert "quantization" not in log.settings


def test_the_context_of_an_earlier_concurrency_is_not_that_of_the_last_start() -> None:
    first = FIRST + "INFO Maximum concurrency for 40,960 tokens per request: 3.32x\n"
    log = log_of_lines((first + SECOND).splitlines())
    assert log.settings["context"] == 32768
    assert log_of_lines(first.splitlines()).settings["context"] == 40960


def test_what_was_said_of_the_model_and_the_device_once_holds_on() -> None:
    again = "INFO Initializing a V1 LLM engine\nINFO Available KV cache memory: 12.00 GiB\n"
    log = log_of_lines(f"GPU 0: NVIDIA L40S\n{FIRST}{again}".splitlines())
    assert log.settings["model"] == "Qwen/Qwen3-8B"
    assert log.settings["device_name"] == "NVIDIA L40S"
    assert "kv_dtype" not in log.settings
    assert log.figures["available_gib"] == 12.0


def test_a_start_that_says_nothing_of_memory_leaves_the_one_before_with_its_settings() -> None:
    log = log_of_lines(f"{FIRST}INFO Initializing a V1 LLM engine".splitlines())
    assert log.figures["available_gib"] == 18.70
    assert log.settings["quantization"] == "fp8"


def test_the_last_start_counts_of_two_engines_too() -> None:
    for parts, engine, model in (
        ((FIRST, SGLANG), "sglang", "Qwen/Qwen3-8B"),
        ((SGLANG, SECOND), "vllm", "Qwen/Qwen3-14B"),
    ):
        log = log_of_lines("".join(parts).splitlines())
        assert (log.engine, log.settings["model"], log.tellers) == (engine, model, {engine})
        assert "block_size" not in log.settings


def test_figures_of_two_engines_in_one_start_are_refused_by_name() -> None:
    mixed = FIRST + "\n".join(SGLANG.splitlines()[1:])
    done = reconcile(mixed)
    assert done.exit_code == 2
    assert "figures of sglang and vllm in one start" in done.output


def test_words_of_another_engine_do_not_make_it_a_log_of_that() -> None:
    log = log_of_lines(f"# ollama and sglang do not start here\n{FIRST}".splitlines())
    assert log.engine == "vllm"


def test_a_colour_within_words_hides_no_line() -> None:
    coloured = FIRST.replace("KV cache memory", "\x1b[1;36mKV\x1b[0m cache \x1b[32mmemory\x1b[0m")
    path_free = log_of_lines(FIRST.splitlines()).figures
    done = reconcile(coloured, "--format", "json")
    assert done.exit_code == 0, done.output
    assert "available_kv_bytes" in done.output
    assert path_free == {"available_gib": 18.70}


def test_a_packed_log_is_read_as_it_is(tmp_path: Path) -> None:
    packed = tmp_path / "start.log.gz"
    packed.write_bytes(gzip.compress(FIRST.encode()))
    assert read_log(str(packed)).figures == {"available_gib": 18.70}


@pytest.mark.parametrize("cut", [20, -9, 4])
def test_a_damaged_packed_log_is_told(tmp_path: Path, cut: int) -> None:
    packed = tmp_path / "start.log.gz"
    packed.write_bytes(gzip.compress(FIRST.encode())[:cut])
    done = CliRunner().invoke(main, ["reconcile", str(packed)])
    assert done.exit_code == 2
    assert "damaged gzip file" in done.output


def test_a_packed_log_is_no_larger_than_others_may_be(tmp_path: Path, lower: Lower) -> None:
    lower("LOG_BYTES", 2**16)
    packed = tmp_path / "large.gz"
    packed.write_bytes(gzip.compress(b"x\n" * 2**16 + FIRST.encode()))
    assert read_log(str(packed)).figures == {}
