"""`plan --engine`: answers, gates, searches and bad input, as a user types them."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, write_model
from headcount.plan.engines.registry import ENGINES
from plan_runs import document, engine, run

GIB = 2**30

LOGGED = ("qwen3-8b", "--engine", "vllm", "--engine-version", "0.9.2", "--context", "40960")


def test_a_given_cache_memory_gives_what_the_engine_logged() -> None:
    found = engine(*LOGGED, "--kv-memory", "18.69GiB")
    assert found["num_blocks"] == 8506  # 8,505 in the log, whose 18.69 is rounded
    assert found["kv_tokens"] == 136_096
    assert found["concurrency"] == pytest.approx(3.32, abs=0.005)
    assert found["max_concurrency"] == 3
    assert (found["name"], found["version"], found["device"]) == ("vllm", "0.9.2", None)
    assert found["budget"] == []
    assert found["launch_command"] is None  # 0.9.2 has no option for it
    assert "0.9.2 has no --kv-cache-memory-bytes" in found["launch_notes"][0]
    newer = engine(*LOGGED[:4], "0.11.0", "--kv-memory", "18.69GiB")["launch_command"]
    assert shlex.split(newer)[-2] == "--kv-cache-memory-bytes"


def test_the_budget_adds_up_and_the_plan_keeps_its_keys() -> None:
    found = document(*LOGGED, "--device", "a100-40gb")
    assert found["schema_version"] == 1
    assert {"model", "request", "memory", "limits", "what_if", "findings"} <= set(found)
    allowed, *taken = found["engine"]["budget"]
    left = allowed["bytes"] - sum(term["bytes"] for term in taken)
    assert found["engine"]["available_kv_bytes"] == left
    assert found["engine"]["available_kv_low"] < left < found["engine"]["available_kv_high"]
    assert found["engine"]["utilisation"] == 0.9
    assert found["fits"] is found["engine"]["fits"] is True


def test_the_largest_context_fits_and_one_token_more_does_not() -> None:
    base = ("llama-3.1-70b", "--engine", "vllm", "--kv-memory", "3GiB")
    most = engine(*base, "--batch-size", "2")["max_context"]
    assert 0 < most < 131_072
    assert engine(*base, "--batch-size", "2", "--context", str(most))["fits"]
    over = engine(*base, "--batch-size", "2", "--context", str(most + 1))
    assert not over["fits"]
    assert over["smallest_change"]["change"] == "kv_dtype"
    assert [c["value"] for c in over["changes"] if c["change"] == "context"] == [most]


def test_each_change_makes_it_fit() -> None:
    base = ["llama-3-70b", "--device", "h100", "--engine", "vllm", "--context", "8k"]
    found = engine(*base)
    assert found["limiting_term"] == "weights"
    assert not found["fits"]
    changes = {change["change"]: change["value"] for change in found["changes"]}
    assert found["smallest_change"] == found["changes"][0]
    assert changes["tp"] == 4  # of 2 the estimates' error decides
    assert engine(*base, "--tp", "2")["verdict"] == "borderline"
    assert engine(*base, "--tp", "4")["verdict"] == "fits"
    assert engine(*base, "--dtype", changes["dtype"])["verdict"] == "fits"


_OPTIONS = {"utilisation": "--utilisation", "kv_dtype": "--kv-dtype", "context": "--context"}


@pytest.mark.parametrize(
    "args",
    [
        ("qwen3-32b", "--device", "h100", "--engine", "vllm"),
        ("qwen3-8b", "--device", "24gb", "--engine", "vllm", "--batch-size", "3"),
        ("qwen3-8b", "--device", "24gb", "--engine", "llama.cpp", "--batch-size", "3"),
    ],
)
def test_a_change_that_is_followed_passes_the_gate(args: tuple[str, ...]) -> None:
    """And a context is the longest that does, which `--require context` asks for."""
    changes = [c for c in engine(*args)["changes"] if c["change"] in _OPTIONS]
    assert "context" in {change["change"] for change in changes}
    for change in changes:
        followed = (*args, _OPTIONS[change["change"]], str(change["value"]))
        assert engine(*followed, "--require", "fits")["holds"], change
        if change["change"] == "context":
            value = change["value"]
            (held,) = engine(*args, "--require", f"context>={value}")["requirements"]
            assert held["holds"] and held["low"] == value < held["found"]


def test_a_change_that_may_fit_is_said_to_be_borderline() -> None:
    """163 GB of weights on 16 devices of 15 GB: what is left is within the error."""
    args = ("qwen3-next", "--engine", "vllm", "--engine-version", "0.11.0", "--device", "t4")
    found = engine(*args)
    assert found["smallest_change"]["verdict"] == "borderline"
    assert [change["value"] for change in found["changes"]] == [16]
    assert engine(*args, "--tp", "16")["verdict"] == "borderline"
    printed = run(*args).output
    assert "Borderline with " in printed and "Would fit with" not in printed


def test_fewer_key_value_heads_are_a_change() -> None:
    base = ("qwen3-8b", "--engine", "vllm", "--kv-dtype", "fp8", "--kv-memory", "2GiB")
    found = engine(*base, "--context", "32k", "--batch-size", "2")
    changes = {change["change"]: change["value"] for change in found["changes"]}
    # 2 GiB are 1,820 blocks of 16 x 73,728 B, of which requests get 1,819: 909 each.
    assert changes == {"context": 909 * 16, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("require", "code"),
    [
        ("fits", 0),
        ("context>=32k", 0),
        ("context >= 1m", 1),
        ("concurrency>=3.3", 0),
        ("concurrency>=4", 1),
        ("kv_tokens>=100000", 0),
        ("fits,concurrency>=8", 1),
    ],
)
def test_a_requirement_sets_the_exit_status(require: str, code: int) -> None:
    result = run(*LOGGED, "--kv-memory", "18.69GiB", "--require", require)
    assert result.exit_code == code
    assert f"Requires {require.split(',')[0].strip()}" in result.output


@pytest.mark.parametrize("require", ["", "context>=", "speed>=3", "concurrency>=x", "fits,"])
def test_an_unreadable_requirement_is_refused(require: str) -> None:
    result = run(*LOGGED, "--kv-memory", "18GiB", "--require", require)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_search_finds_the_least_memory_for_its_users() -> None:
    found = engine("qwen3-32b", "--target-users", "32", "--context", "16k")
    memory = [option["total_memory"] for option in found["smallest"]]
    assert memory == sorted(memory)
    for option in found["smallest"]:
        assert option["concurrency"] * option["replicas"] >= 32
        assert option["devices"] == option["tp"] * option["pp"] * option["replicas"]
    assert {option["tp"] for option in found["options"]} == {1, 2, 4, 8}
    one = engine("qwen3-32b", "--target-users", "32", "--context", "16k", "--device", "h200")
    assert [option["tp"] for option in one["smallest"]] == [2]


def test_a_search_that_finds_nothing_says_so() -> None:
    """405 B parameters of 16 bit are 810 GB; 64 of the device are 687 GB."""
    result = run("llama-3.1-405b", "--target-users", "900", "--device", "rtx-3080")
    assert result.exit_code == 1
    assert "no device of those named suffices" in result.stdout
    assert "on 64 x rtx-3080 (tp 8 x pp 8), the nearest to it" in result.stderr


@pytest.mark.parametrize("args", [("-ngl", "0"), ("--no-kv-offload",)])
def test_a_cache_in_the_host_s_memory_is_limited_by_no_device(args: tuple[str, ...]) -> None:
    """llama.cpp keeps a layer's cache where the layer is, or all of it with the host."""
    gate = ("--require", "fits,concurrency>=2,kv_tokens>=1m")
    given = ("llama-3-8b", "--engine", "llama.cpp", "--device", "rtx-4090", *args, *gate)
    result = run(*given)
    assert result.exit_code == 0
    assert "fits: the cache lies in the host's memory" in result.output
    assert "0.00" not in result.output.split("Memory\n")[0]
    found = json.loads(run(*given, "--format", "json").stdout)["engine"]
    assert (found["fits"], found["concurrency"], found["max_concurrency"]) == (True, None, None)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--tp", "3", "--device", "h100"), "valid are 1, 2, 4, 8, 16, 32"),
        (("--pp", "99", "--device", "h100"), "valid are 1 to 36"),
        (("--device", "h1000"), "nearest"),
        (("--kv-dtype", "fp5", "--device", "h100"), "fp5"),
        (("--target-users", "3", "--kv-memory", "3GiB"), "leave out --kv-memory"),
        (("--target-users", "3", "--engine", "generic"), "want an engine that serves them"),
        (("--kv-memory", "lots"), "is not a size"),
        (("--kv-memory", "9GiB", "--utilisation", "0.8"), "leave out one of them"),
    ],
)
def test_bad_input_is_told_in_a_line(args: tuple[str, ...], words: str) -> None:
    result = run("qwen3-8b", "--engine", "vllm", *args)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_context_beyond_the_maximum_and_an_unknown_version_are_warned_of() -> None:
    args = ("qwen3-8b", "--kv-memory", "20GiB", "--context", "100k", "--engine-version", "9.9")
    result = run(*args)
    assert result.exit_code == 0
    assert "beyond the model's maximum of 40,960: planned anyway" in " ".join(result.output.split())
    assert "newer than 0.33, whose rules are used" in result.output


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (
            ("--engine", "vllm", "--tp", "2", "--kv-dtype", "fp8", "--utilisation", "0.85"),
            "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --tensor-parallel-size 2"
            " --gpu-memory-utilization 0.85 --kv-cache-dtype fp8",
        ),
        (
            ("--engine", "vllm", "--max-num-seqs", "64", "--enforce-eager", "--dtype", "fp8"),
            "vllm serve Qwen/Qwen3-8B --quantization fp8 --max-model-len 8192 --max-num-seqs 64"
            " --enforce-eager",
        ),
        (
            ("--engine", "sglang", "--tp", "2", "--kv-dtype", "fp8_e5m2", "--utilisation", "0.8"),
            "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-length 8192"
            " --tp-size 2 --mem-fraction-static 0.8 --kv-cache-dtype fp8_e5m2",
        ),
        (
            ("--engine", "llama.cpp", "--batch-size", "4", "--kv-dtype", "q8_0"),
            "llama-server -m '<your BF16 GGUF file of Qwen/Qwen3-8B>' -ngl 999 -c 32768"
            " --cache-type-k q8_0 --cache-type-v q8_0",
        ),
        (
            ("--engine", "transformers", "--static-cache"),
            'model = transformers.AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B",'
            ' dtype="auto", device_map="auto"); model.generate(**inputs, max_length=8192,'
            ' cache_implementation="static")',
        ),
    ],
)
def test_the_launch_command_says_what_was_planned(args: tuple[str, ...], command: str) -> None:
    found = engine("qwen3-8b", "--device", "h100", "--context", "8k", *args)
    assert found["launch_command"] == command
    assert found["fits"]


def test_conversion_buys_tokens_until_ranks_hold_copies() -> None:
    rows = engine("qwen3-8b", "--device", "h100", "--tp", "4", "--engine", "vllm")["conversion"]
    heads = [row["num_key_value_heads"] for row in rows]
    assert heads[:4] == [8, 4, 2, 1]
    per_token = [row["rank_cache_bytes_per_token"] for row in rows[:4]]
    assert per_token == [36_864, 18_432, 18_432, 18_432]
    assert [row["kv_copies"] for row in rows[:4]] == [1, 1, 2, 4]
    assert rows[0]["replicated_kv_bytes"] == rows[1]["replicated_kv_bytes"] == 0
    assert rows[3]["replicated_kv_bytes"] > rows[2]["replicated_kv_bytes"] > 0
    assert rows[1]["concurrency"] > 1.9 * rows[0]["concurrency"]


def test_latents_are_on_every_rank() -> None:
    asked = ("--kv-memory", "20GiB", "--engine", "vllm", "--tp", "4")
    rows = engine("llama-3-8b", *asked)["conversion"]
    key = "rank_cache_bytes_per_token"
    latents = {row["name"]: row[key] for row in rows if "MLA" in row["name"]}
    assert latents == {
        "MLA, latent of 448 + 128": 32 * 576 * 2,
        "MLA, latent of 384 + 128": 32 * 512 * 2,
        "MLA, latent of 192 + 128": 32 * 320 * 2,
    }


def test_the_curve_falls_with_the_context() -> None:
    points = engine("qwen3-8b", "--kv-memory", "20GiB")["curve"]
    assert [point["context"] for point in points] == [*(1024 << i for i in range(6)), 40_960]
    sizes = [point["request_bytes"] for point in points]
    assert sizes[0] == 1024 * 147_456
    assert sizes == sorted(sizes)


def test_the_curve_of_requests_ends_with_the_first_that_does_not_fit() -> None:
    found = engine(*LOGGED, "--kv-memory", "18.69GiB")
    points = [(point["batch_size"], point["fits"]) for point in found["batch_curve"]]
    assert points == [(1, True), (2, True), (4, False)]
    sizes = [point["cache_bytes"] for point in found["batch_curve"]]
    assert sizes == [n * 40_960 * 147_456 for n in (1, 2, 4)]
    assert engine("bert-base", "--kv-memory", "1GiB")["batch_curve"] == []


@pytest.mark.parametrize("form", ["table", "markdown", "html", "csv", "json"])
@pytest.mark.parametrize("name", ["vllm", "sglang", "transformers", "llama.cpp"])
@pytest.mark.parametrize("model", ["gpt-oss-20b", "deepseek-v3", "qwen3-next", "whisper-base"])
def test_every_engine_plans_every_kind_of_model(model: str, name: str, form: str) -> None:
    result = run(model, "--device", "h200", "--tp", "8", "--engine", name, "--format", form)
    assert result.exit_code == 0, result.output


def test_weights_that_are_quantised_on_loading_keep_their_embeddings() -> None:
    """gemma-4-31B-it with --quantization fp8 took 31.47 GiB of its 58.28 in a start-up log."""
    args = ("gemma-4-31b", "--device", "rtx-pro-6000", "--engine-version", "0.19.0")
    weights = {
        dtype: engine(*args, "--dtype", dtype)["budget"][1]["bytes"] / GIB
        for dtype in ("bf16", "fp8", "int4")
    }
    assert weights["bf16"] == pytest.approx(58.28, rel=0.02)
    assert weights["fp8"] == pytest.approx(31.47, rel=0.03)
    assert weights["int4"] < 0.65 * weights["fp8"]


def test_a_model_without_a_cache_fits_if_its_weights_do() -> None:
    for name in ("vllm", "sglang", "transformers", "llama.cpp"):
        found = engine("bert-base", "--device", "h100", "--engine", name)
        assert found["fits"] is True
        assert found["max_context"] == 512
    assert "keeps no cache" in run("bert-base", "--device", "h100", "--engine", "vllm").output


@pytest.mark.parametrize(
    "args",
    [
        ("--block-size", "9" * 15),
        ("--kv-memory", "1"),
        ("--kv-memory", "9000000TiB"),
        ("--context", "1"),
        ("--context", "9" * 15),
        ("--max-num-seqs", "9" * 15),
        ("--max-num-batched-tokens", "9" * 15),
        ("--batch-size", "1000000"),
        ("--context-ranks", "9" * 9),
        ("--utilisation", "0.000001"),
        ("--engine-version", "9" * 400),
        ("--engine-version", "0.0.0"),
    ],
)
@pytest.mark.parametrize("name", ["vllm", "sglang", "transformers", "llama.cpp"])
def test_extreme_values_give_a_plan_or_an_error(name: str, args: tuple[str, ...]) -> None:
    given = () if args[0] == "--kv-memory" else ("--device", "h100")
    result = run("gpt-oss-20b", "--engine", name, *given, *args)
    assert result.exit_code in (0, 2), result.output
    assert isinstance(result.exception, (SystemExit, type(None))), result.exception


def test_stages_of_a_pipeline_share_weights_and_layers() -> None:
    base = ("llama-3.1-70b", "--device", "h100", "--engine", "vllm", "--tp", "2", "--context", "8k")
    one, two = engine(*base), engine(*base, "--pp", "2")
    assert two["available_kv_bytes"] > one["available_kv_bytes"] + 30 * GIB
    assert two["kv_tokens"] > 2 * one["kv_tokens"]
    assert "--pipeline-parallel-size 2" in two["launch_command"]


@pytest.mark.parametrize(
    ("version", "args", "latent"),
    [
        ("0.11.0", (), 656),
        ("0.11.1", (), 1152),
        ("0.11.0", ("--kv-dtype", "bf16"), 1152),
        ("0.33.0", ("--kv-dtype", "fp8"), 656),
    ],
)
def test_latents_of_deepseek_v32_go_by_version_and_type(
    version: str, args: tuple[str, ...], latent: int
) -> None:
    found = engine(
        "deepseek-v3.2",
        "--engine",
        "vllm",
        "--engine-version",
        version,
        "--kv-memory",
        "9GiB",
        *args,
    )
    assert found["rank_cache_bytes_per_token"] == 61 * (latent + 132)


def test_caching_prefixes_of_a_hybrid_is_part_of_the_start() -> None:
    args = ("qwen3.5-27b", "--kv-memory", "20GiB", "--engine-version", "0.26.0")
    none, align = (engine(*args, "--mamba-cache-mode", mode) for mode in ("none", "align"))
    assert none["num_blocks"] == align["num_blocks"]
    assert none["concurrency"] > align["concurrency"]
    assert "--enable-prefix-caching --mamba-cache-mode align" in align["launch_command"]
    assert "--no-enable-prefix-caching" in none["launch_command"]


def test_a_plan_without_an_engine_says_how_to_get_a_command() -> None:
    assert "--engine vllm" in run("gpt2", "--details").output


def test_a_search_gives_the_command_of_the_least_that_serves() -> None:
    args = ("qwen3-32b", "--target-users", "32", "--context", "16k", "--device", "h100")
    found = engine(*args)
    (least,) = found["smallest"]
    assert least["launch_command"].startswith("vllm serve Qwen/Qwen3-32B --max-model-len 16384")
    assert f"--tensor-parallel-size {least['tp']}" in least["launch_command"]
    assert least["launch_command"] in run(*args).output


ATTENTION_OF_70B = 80 * 2 * 8192 * (8192 + 1024)  # q and o, k and v of 8 heads


def test_fewer_parameters_than_the_layers_have_are_refused() -> None:
    result = run("llama-3-70b", "--device", "h100", "--parameters", str(ATTENTION_OF_70B - 1))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"alone have {ATTENTION_OF_70B:,}" in result.stderr


def test_with_all_of_them_no_size_is_negative() -> None:
    found = document("llama-3-70b", "--device", "h100", "--parameters", str(ATTENTION_OF_70B))
    assert min(row["weights_bytes"] for row in found["what_if"]) >= 0


def test_weights_that_hold_less_than_the_projections_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path, LLAMA_CONFIG, {"model.norm.weight": (32,)})
    result = run(str(tmp_path), "--device", "h100")
    assert result.exit_code == 2
    assert "they do not belong together" in result.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_drafting_model_has_no_cache_of_its_own(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma4_assistant"}))
    options = ("--device", "h100", "--parameters", "1b", "--engine", engine)
    assert document(str(path), *options)["memory"]["kv_cache_bytes"] == 0


MISTRAL: dict[str, Any] = {
    **{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": 32000},
    **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16"},
    **{"max_position_embeddings": 32768, "sliding_window": 4096, "tie_word_embeddings": False},
}
# 32 layers x 8 K/V heads x (128 + 128) x 2 B
OF_A_TOKEN = 131_072


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm", "transformers", "generic"])
def test_windows_say_what_a_token_takes_before_they_are_full(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    asked = (str(tmp_path), "--device", "h100", "--engine", name, "--context", "16k")
    text = " ".join(run(*asked, "--details").stdout.split())
    assert f"KV cache per token {OF_A_TOKEN:,} B (128.00 KiB)" in text
    assert "and a further token 0 B (once every window is full)" in text
    assert document(*asked)["per_rank"]["rank_cache_bytes_per_token"] == 0


def test_the_blocks_of_a_window_can_be_reckoned_up(tmp_path: Path) -> None:
    """Blocks of 16 tokens are 2 MiB. Of 32,768 tokens vLLM keeps the window's last 4,095 and two
    steps of 8,192: ceil(20,479 / 16) + 1 = 1,281 blocks (SlidingWindowSpec of its
    kv_cache_interface.py)."""
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL))
    memory = document(
        *(str(tmp_path), "--device", "h100", "--engine", "vllm", "--context", "32k"),
    )["memory"]
    formula = memory["formulas"]["kv_cache"]
    assert formula == (
        "1,281 blocks x 2,097,152 B of a request of 32,768 tokens; of a window of 4,096 the least"
        " of 4,096 - 1 + 16,384 in flight and 32,768 tokens / 16, rounded up, and 1 that the"
        " window begins inside + the null block"
    )
    assert memory["kv_cache_bytes"] == (1281 + 1) * 2_097_152
