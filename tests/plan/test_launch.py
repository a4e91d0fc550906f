"""The command that starts what was planned: by words that the engine's own command line knows, and
of nothing else than what was planned.

The words are those of the engines' sources (engine_words.jsonl, made by tools/engine_words.py).
What each engine quantises while it loads is from those sources, too: vllm's
model_executor/layers/quantization, sglang's layers/quantization, llama.cpp's src/llama-quant.cpp.
"""

import ast
import json
import re
import shlex
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG
from headcount.cli import main
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.plan import plan_model
from headcount.plan.request import PlanRequest
from launches import CODER, DTYPES, H200, LLAMA, launch, launches, model
from plan_runs import run

RECORD = Path(__file__).with_name("engine_words.jsonl")
LINES = {line["engine"]: line for line in map(json.loads, RECORD.read_text().splitlines())}


def known_words(engine: str, version: str) -> frozenset[str]:
    """Those of the version; of one whose source is not at hand, of the last before it."""
    line = LINES[engine]
    versions = line["versions"]
    at = versions.index(version) if version in versions else len(versions) - 1

    def has(span: list[str] | None) -> bool:
        if span is None:
            return True
        if span[0] == "":
            return versions[at] in span
        first, last = (versions.index(end) for end in span)
        return bool(first <= at <= last)

    return frozenset(word for word, span in line["words"].items() if has(span))


def words_of(command: str) -> list[str]:
    """Options and variables, and the choices of those that have some."""
    parts = shlex.split(command)
    if "-c" in parts and parts[parts.index("-c") - 1] == "python":
        call = ast.parse(parts[parts.index("-c") + 1]).body[-1]
        assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
        parts = parts[: parts.index("python")]
        for argument in call.value.keywords:
            value = ast.literal_eval(argument.value)
            parts += [f"--{(argument.arg or '').replace('_', '-')}", str(value)]
    found = []
    for n, part in enumerate(parts):
        name = part.partition("=")[0]
        if part.startswith("-") or re.fullmatch(r"[A-Z][A-Z0-9_]+=.*", part):
            found.append(name.replace("--no-enable", "--enable"))
        if part in ("--kv-cache-dtype", "--quantization"):
            found.append(f"{part[2:]}={parts[n + 1]}")
        if part in ("--cache-type-k", "--cache-type-v"):
            found.append(f"cache-type={parts[n + 1]}")
    return [word for word in found if word not in ("-m",)] if "sglang" in command else found


@pytest.mark.parametrize("engine", LINES)
def test_every_word_of_a_command_is_one_that_the_version_knows(engine: str) -> None:
    given = 0
    for version in LINES[engine]["versions"]:
        for found in launches(engine, version):
            assert found.command or found.notes
            if found.command:
                given += 1
                unknown = set(words_of(found.command)) - known_words(engine, version)
                assert not unknown, (version, found.command)
    assert given > 10


# What each engine makes of 16 bit weights while it loads them: all others want a checkpoint.
MADE = {
    ("vllm", "0.32.0"): {
        **{"fp8": "--quantization fp8", "mxfp8": "--quantization mxfp8"},
        **{"mxfp4": "--quantization mxfp4", "bf16": "--dtype bfloat16"},
    },
    ("vllm", "0.19.0"): {
        **{"fp8": "--quantization fp8", "nf4": "--quantization bitsandbytes"},
        **{"mxfp8": "--quantization mxfp8", "fp16": "--dtype float16"},
    },
    ("vllm", "0.8.5"): {"fp8": "--quantization fp8", "nf4": "--quantization bitsandbytes"},
    ("sglang", "0.5.23"): {
        **{"fp8": "--quantization fp8", "mxfp8": "--quantization mxfp8"},
        "nf4": "--load-format bitsandbytes --quantization bitsandbytes",
    },
    ("transformers", None): {
        "int8": "transformers.BitsAndBytesConfig(load_in_8bit=True)",
        "nf4": 'transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")',
        "fp8": "quantization_config=transformers.FineGrainedFP8Config()",
        "bf16": 'dtype="bfloat16"',
    },
    ("llama.cpp", None): {},
    ("tensorrt-llm", None): {},
}


@pytest.mark.parametrize(("engine", "version"), MADE)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name is not None])
def test_a_command_starts_weights_of_the_format_that_was_planned(
    engine: str, version: str | None, dtype: str
) -> None:
    """The model's own name stands there only with what quantises it. A B200 runs every format."""
    found = launch(LLAMA, engine, version, dtype=dtype, device=find_device("b200"))
    words = MADE[engine, version].get(dtype)
    if words is not None:
        assert words in (found.command or "") and LLAMA in (found.command or "")
        assert "<your" not in (found.command or "")
    elif dtype not in ("bf16", "fp16") or engine == "llama.cpp":
        assert found.command is None or "<your" in found.command
        assert found.notes


@pytest.mark.parametrize(
    ("engine", "dtype", "words"),
    [
        ("vllm", "int4", "quantises no weights to int4 while it loads them"),
        ("vllm", "awq", "put the name of a checkpoint that is stored so"),
        ("vllm", "nf4", "loads no weights of nf4"),  # bitsandbytes went with 0.28
        ("vllm", "q4_k_m", "reads no GGUF"),  # which went with 0.24
        ("llama.cpp", "awq", "llama.cpp has no weights of awq"),
        ("llama.cpp", "q4_k_m", "llama-quantize"),
    ],
)
def test_a_report_says_what_has_to_be_there_first(engine: str, dtype: str, words: str) -> None:
    args = ["plan", LLAMA, "--device", "h100", "--engine", engine, "--dtype", dtype]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0
    assert words in " ".join(result.output.split())
    found = json.loads(CliRunner().invoke(main, [*args, "--format", "json"]).output)["engine"]
    assert any(words in note for note in found["launch_notes"])


STORED = (
    ("deepseek-v3", "fp8", True),
    ("gpt-oss-20b", "mxfp4", True),
    ("gpt-oss-20b", "awq", False),
    ("gpt-oss-20b", "bf16", False),
    ("deepseek-v3", "bf16", False),
)


@pytest.mark.parametrize(("name", "dtype", "same"), STORED)
def test_a_model_that_is_stored_so_needs_no_option_and_any_other_a_checkpoint(
    name: str, dtype: str, same: bool
) -> None:
    tp = 8 if name == "deepseek-v3" else 1
    plain = launch(name, "vllm", "0.32.0", tp=tp).command
    found = launch(name, "vllm", "0.32.0", tp=tp, dtype=dtype).command
    assert plain is not None and "<your" not in plain and "quantization" not in plain
    assert (found == plain) is same
    assert ("<your" in (found or "")) is not same


def test_a_checkpoint_of_another_name_is_started_by_its_own() -> None:
    assert f"vllm serve {CODER} " in (launch(CODER, "vllm").command or "")


# Names of repositories of the Hub, of each of which a relative's config is read.
OTHERS = {"minimax-m2": "MiniMaxAI/MiniMax-M2", "qwen2-1.5b": "Qwen/Qwen2-1.5B"}
OTHERS |= {"pythia-1b-deduped": "EleutherAI/pythia-1b-deduped", "qwen2-vl-2b": "Qwen/Qwen2-VL-2B"}


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_that_is_a_repository_s_starts_that_one(name: str) -> None:
    result = run(name, "--engine", "vllm", "--device", "h200", "--tp", "4", "--context", "1k")
    assert f"vllm serve {OTHERS[name]} " in result.stdout
    assert f"The catalogue lacks the config of {OTHERS[name]}" in result.stdout


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers", "tensorrt-llm"])
def test_a_file_of_a_model_is_no_name_to_start(engine: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    options = ("--engine", engine, "--device", "h100", "--format", "json")
    text = (tmp_path / "config.json").read_text()
    for name, shown in (
        (str(tmp_path), f"{tmp_path}"),
        (str(tmp_path / "config.json"), f"<the folder or repository of {tmp_path}/config.json>"),
        ("-", "<the folder or repository of standard input>"),
    ):
        args = ["plan", name, "--parameters", "1b", *options]
        done = CliRunner().invoke(main, args, input=text)
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)["engine"]
        assert shown in found["launch_command"]
        assert any("is no model to start" in note for note in found["launch_notes"]) == (
            "<" in shown
        )


def test_gguf_files_are_read_by_those_that_can() -> None:
    for engine, version, words in (
        ("vllm", "0.19.0", "--tokenizer"),
        ("sglang", "0.5.23", "--load-format gguf"),
        ("llama.cpp", None, "-m '<your Q4_K_M GGUF file of"),
    ):
        assert words in (launch(LLAMA, engine, version, dtype="q4_k_m").command or "")
    assert "BF16 GGUF" in launch(LLAMA, "llama.cpp").notes[0]
    assert "-hf" in launch(LLAMA, "llama.cpp").notes[1]


@pytest.mark.parametrize("on_hub", [False, True])
@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.19.0"), ("llama.cpp", None)])
def test_a_gguf_file_of_the_hub_is_no_path(engine: str, version: str | None, on_hub: bool) -> None:
    file = replace(
        model("qwen3-8b"), model_id="Qwen/Qwen3-8B-GGUF/a/Qwen3-8B-Q8_0.gguf", on_hub=on_hub
    )
    numbers = find_engine(engine).releases.parse(version) if version else None
    found = plan_model(file, PlanRequest(engine=engine, version=numbers, device=H200)).launch
    assert found is not None and found.command is not None
    assert (" '<your copy of " in found.command) is on_hub
    assert (f" {file.model_id} " in found.command) is not on_hub
    words = "-hf Qwen/Qwen3-8B-GGUF --hf-file a/Qwen3-8B-Q8_0.gguf"
    assert (words in " ".join(found.notes)) is on_hub


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve"),
        ("sglang", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 python -m sglang"),
        ("llama.cpp", ""),
        ("transformers", ""),
    ],
)
def test_a_context_beyond_the_models_is_said_and_allowed(engine: str, words: str) -> None:
    """vllm/config/model.py, sglang/srt/configs/model_config.py, tools/server/server-context.cpp."""
    longest = model(LLAMA).spec.max_position_embeddings
    assert longest == 8192
    at, beyond = (launch(LLAMA, engine, context=longest + more) for more in (0, 1))
    assert (beyond.command or "").startswith(words)
    assert "LONG" not in (at.command or "")
    assert any("8,192 tokens" in note for note in beyond.notes)
    assert not any("8,192 tokens" in note for note in at.notes)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "transformers"])
def test_no_context_is_longer_than_learned_positions(engine: str) -> None:
    """GPT-2's table has 1,024 rows (wpe)."""
    at, beyond = (launch("gpt2", engine, context=tokens) for tokens in (1024, 1025))
    assert at.command is not None and beyond.command is None
    assert "learned 1,024 positions" in beyond.notes[0]


@pytest.mark.parametrize(
    ("version", "request_", "words"),
    [
        ("0.9.2", {"kv_memory": 2**34}, "0.9.2 has no --kv-cache-memory-bytes (since 0.10.2)"),
        ("0.14.1", {"mamba_cache_mode": "none"}, "0.14.1 has no --mamba-cache-mode (since 0.15)"),
        ("0.11.0", {"model_runner": "v2"}, "0.11.0 has no VLLM_USE_V2_MODEL_RUNNER (since 0.12)"),
        ("0.8.5", {"disable_hybrid_kv_cache_manager": True}, "(since 0.9.1)"),
    ],
)
def test_what_a_version_cannot_say_is_no_command(
    version: str, request_: dict[str, Any], words: str
) -> None:
    found = launch(LLAMA, "vllm", version, **request_)
    assert found.command is None
    assert any(words in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "tp", "ranks", "words"),
    [
        ("qwen3-8b", 8, 2, "2 context ranks need tp 16 or more"),  # 32 query and 8 K/V heads
        ("qwen3-8b", 32, 8, "8 context ranks need tp 64 or more"),
        ("qwen3-8b", 16, 2, ""),
        ("qwen3-8b", 32, 4, ""),
        ("qwen3-8b", 32, 3, "3 context ranks do not divide tp 32"),
        ("qwen2.5-7b", 28, 14, "14 context ranks need tp 56 or more"),  # 28 and 4
        ("deepseek-v3", 16, 16, ""),
        ("deepseek-v3", 16, 3, "do not divide tp 16"),
    ],
)
def test_context_ranks_are_those_that_the_engine_takes(
    name: str, tp: int, ranks: int, words: str
) -> None:
    """verify_with_parallel_config and _verify_args of vllm/config, 0.32."""
    found = launch(name, "vllm", "0.32.0", tp=tp, context_ranks=ranks)
    assert (found.command is None) is bool(words)
    assert words in " ".join(found.notes)
    if not words:
        assert f"--decode-context-parallel-size {ranks}" in (found.command or "")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "transformers"])
@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("facebook/opt-125m", {"llama.cpp"}),
        ("Zyphra/Zamba2-7B", {"sglang", "llama.cpp"}),
        (LLAMA, set()),
    ],
)
def test_a_type_that_the_engine_lists_no_class_of_has_a_note(
    name: str, lacking: set[str], engine: str
) -> None:
    """vLLM's registry, SGLang's models and llama.cpp's converter (arch/generated)."""
    notes = " ".join(launch(name, engine, context=2048).notes)
    assert ("lists no class" in notes) is (engine in lacking)


@pytest.mark.parametrize(
    ("engine", "pools"), [("vllm", True), ("sglang", True), ("llama.cpp", False)]
)
def test_a_class_that_only_pools_is_said_to(engine: str, pools: bool) -> None:
    """BertForMaskedLM is of _EMBEDDING_MODELS of vLLM 0.32, BertModel of those that SGLang's
    is_generation_model leaves out."""
    notes = " ".join(launch("bert-base", engine, context=512).notes)
    assert ("for pooling alone" in notes) is pools
    assert "lists no class" not in notes


def test_a_revision_that_was_asked_for_is_to_be_said() -> None:
    other = replace(model(LLAMA), on_hub=True, revision="v2")
    found = plan_model(other, PlanRequest(engine="vllm", device=H200)).launch
    assert found is not None and "It is of revision v2" in found.notes[-1]


def test_an_offline_start_is_one_of_the_class() -> None:
    found = launch(CODER, "vllm", "0.19.0", usage="offline", tp=2, dtype="nf4", kv_dtype="fp8")
    assert found.command == (
        f"""python -c 'import vllm; vllm.LLM("{CODER}", quantization="bitsandbytes","""
        """ max_model_len=131072, tensor_parallel_size=2, kv_cache_dtype="fp8")'"""
    )


@pytest.mark.needs_convert
@pytest.mark.parametrize("dtype", [None, "bf16", "int8", "nf4", "fp8", "awq"])
@pytest.mark.parametrize("name", [LLAMA, "bert-base", "whisper-base", "t5-small"])
def test_the_statements_for_transformers_name_what_it_has(name: str, dtype: str | None) -> None:
    found = launch(name, "transformers", dtype=dtype, tp=2)
    tree = ast.parse(found.command or "")
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    spec = find_spec("transformers")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    text = (root / "__init__.py").read_text() + (root / "models/auto/modeling_auto.py").read_text()
    for thing in used - {"from_pretrained", "generate"}:
        assert re.search(rf"\b{thing}\b", text), thing
    assert "torchrun" in " ".join(found.notes)


@pytest.mark.slow
@pytest.mark.needs_convert
def test_the_statements_run_on_a_tiny_model(tmp_path: Path) -> None:
    import torch
    import transformers

    config = transformers.LlamaConfig(**LLAMA_CONFIG)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    options = ("--engine", "transformers", "--kv-memory", "1GiB", "--context", "12")
    for more in ((), ("--static-cache",), ("--dtype", "fp16")):
        args = ["plan", str(tmp_path), *options, *more, "--format", "json"]
        command = json.loads(CliRunner().invoke(main, args).stdout)["engine"]["launch_command"]
        names = {"transformers": transformers, "inputs": {"input_ids": torch.tensor([[1, 2, 3]])}}
        call = ast.parse(command)
        exec(compile(call, "command", "exec"), names)
        loaded = names["model"]
        assert loaded.dtype == (torch.float16 if more[-1:] == ("fp16",) else torch.bfloat16)
