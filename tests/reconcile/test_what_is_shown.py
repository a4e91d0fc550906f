"""What `reconcile` shows people: a screen, all there is on demand, and what was not checked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from start_up_lines import reconcile as run
from start_up_lines import too_long, vllm

SAMPLE = Path(__file__).parents[2] / "docs" / "vllm-startup.log"  # vLLM 0.32 wrote it
# Llama-3.1-70B on four H100 of which a share of 0.764 was given away, as engines log it.
LESS_MEMORY = (
    "INFO Initializing a V1 LLM engine (v0.11.0) with config:"
    " model='meta-llama/Llama-3.1-70B-Instruct', speculative_config=None, dtype=torch.bfloat16,"
    " max_seq_len=8192, tensor_parallel_size=4, pipeline_parallel_size=1, kv_cache_dtype=auto\n"
    "INFO Model loading took 32.8894 GiB and 3 seconds\n"
    "INFO Available KV cache memory: 22.20 GiB\n"
    "INFO GPU KV cache size: 290,976 tokens\n"
    "INFO Maximum concurrency for 8,192 tokens per request: 35.52x\n"
)
UNCHECKED = "available memory is the log's own: give --device to check it"


def test_a_verdict_says_that_memory_was_held_against_nothing() -> None:
    """Tokens and concurrency follow from it: three that agree are no three that were checked."""
    alone = " ".join(run(LESS_MEMORY).output.split())
    assert f"Verdict 3 of 3 figures agree; {UNCHECKED}" in alone
    assert alone.endswith(f"Verdict: 3 of 3 figures agree; {UNCHECKED}")
    document = json.loads(run(LESS_MEMORY, "--format", "json").output)
    assert document["verdict"].endswith(UNCHECKED)
    found = run(LESS_MEMORY, "--device", "h100")
    assert "3 of 4 figures agree" in found.output and "give --device" not in found.output


def test_a_table_of_logs_says_it_beside_the_log(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(LESS_MEMORY, encoding="utf-8")
    done = CliRunner().invoke(main, ["reconcile", str(tmp_path)])
    assert done.exit_code == 0 and done.output.count(UNCHECKED) == 2


@pytest.mark.parametrize("args", [(), ("--device", "h100"), ("--device", "l4")])
def test_an_answer_fits_on_a_screen_and_details_show_all(args: tuple[str, ...]) -> None:
    for text in (LESS_MEMORY, SAMPLE.read_text(encoding="utf-8")):
        asked = ["reconcile", "-", *args]
        short, whole = (
            CliRunner().invoke(main, [*asked, *more], input=text, env={"COLUMNS": "80"}).stdout
            for more in ((), ("--details",))
        )
        assert len(short.splitlines()) < 24 and short.splitlines()[2].startswith("  Verdict ")
        assert max(map(len, (short + whole).splitlines())) <= 80
        assert "--details" not in whole
        assert short == whole or "--details" in short
    assert "Commands of the changes" not in short and "Commands of the changes" in whole


def test_one_amount_has_one_unit() -> None:
    done = run(SAMPLE.read_text(encoding="utf-8"))
    assert "0.99 GiB are left" in " ".join(done.output.split())
    assert "There was        0.99 GiB" in done.output and "MiB" not in done.output


def test_rows_for_programs_have_the_commands() -> None:
    done = run(SAMPLE.read_text(encoding="utf-8"), "--format", "csv")
    assert done.output.splitlines()[0] == "report,change,kv_tokens,concurrency,command"
    assert "--kv-cache-memory-bytes 4712300544" in done.output.splitlines()[1]


def test_of_a_failed_start_every_change_is_told_on_a_screen() -> None:
    """The log names no device: its figures are held against none that they chose themselves."""
    log = vllm(
        *("0.10.1", "Qwen/Qwen3-8B", 36864),
        "INFO Model loading took 15.2683 GiB and 3 seconds",
        "INFO Available KV cache memory: 4.40 GiB",
        too_long(36864, "5.06", "4.40", 32048),
    )
    asked = ["reconcile", "-", "--format"]
    found = json.loads(CliRunner().invoke(main, [*asked, "json"], input=log).stdout)
    screen = CliRunner().invoke(main, asked[:2], input=log, env={"COLUMNS": "80"}).stdout
    lines, words = screen.splitlines(), " ".join(screen.split())
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    changes = [change["text"] for change in found["explanation"]["changes"]]
    assert len(changes) > 3
    assert f"Smallest change {changes[0]}" in words and f"Or {'; '.join(changes[1:])}" in words
    assert "Context 36,864" in words and "the log names none" in words
    (available,) = [f for f in found["figures"] if f["figure"] == "available_kv_bytes"]
    assert available["agrees"] is None and "the log names no device" in available["why"]


def test_of_a_log_that_ends_too_soon_it_is_said_what_it_begins() -> None:
    begun = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)[:6]
    done = run("".join(begun))
    assert done.exit_code == 2
    assert "it begins a start of vllm 0.32.0 with 'Qwen3-0.6B', and ends before" in done.output
