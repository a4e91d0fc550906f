"""What a plan says of a config that may not be what is meant, and of what was typed amiss."""

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.model.units import parse_bytes
from plan_runs import engine, run

QWEN2: dict[str, Any] = {
    **{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16"},
    **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28},
    **{"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064},
    "max_position_embeddings": 32768,
}


def written(folder: Path, config: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_a_verdict_by_a_doubtful_config_is_marked(tmp_path: Path) -> None:
    """The class builds 32 layers, by its default, where 28 were meant."""
    config = {**QWEN2, "num_hiden_layers": QWEN2["num_hidden_layers"]}
    del config["num_hidden_layers"]
    last = run(written(tmp_path, config), "--device", "h100").stdout.rstrip().splitlines()[-1]
    assert last.startswith("Verdict: fits: ")
    assert last.endswith(" free, by a config with 1 warning (H418)")
    sound = run(written(tmp_path, QWEN2), "--device", "h100").stdout
    assert "by a config" not in sound and "Verdict: fits" in sound


def test_a_type_that_nothing_describes_names_the_nearest(tmp_path: Path) -> None:
    model = written(tmp_path, {**QWEN2, "model_type": "qwen22"})
    refused = run(model, "--device", "h100")
    assert refused.exit_code == 2
    assert "nothing describes model_type 'qwen22' (nearest: qwen2" in refused.stderr
    warned = run(model, "--device", "h100", "--parameters", "7b").stdout
    assert "Warning: Nothing describes model_type 'qwen22' (nearest: qwen2" in warned


@pytest.mark.parametrize("size", ["80GB", "80G", "80gb", "80GiB"])
def test_a_size_is_no_card(size: str) -> None:
    """A card of "80 GB" shows 79.18 GiB (H100) or 79.25 (A100): neither is 80 x 10^9 bytes, 74.51
    GiB, nor 80 GiB."""
    found = run("llama-3-8b", "--device", size, "--format", "json")
    (warning,) = json.loads(found.stdout)["warnings"]
    assert warning.startswith(f"{size} is {'80.00' if 'i' in size else '74.51'} GiB")
    assert "a100-80gb" in warning and " h100" in warning and "l40s" not in warning
    assert json.loads(found.stdout)["memory"]["usable_bytes"] == parse_bytes(size)


def test_a_size_that_no_card_has_is_taken_in_silence() -> None:
    found = run("gpt2", "--device", "13GB", "--format", "json")
    assert json.loads(found.stdout)["warnings"] == []


def test_a_bare_number_is_asked_about() -> None:
    refused = run("gpt2", "--device", "80")
    assert refused.exit_code == 2
    assert "is 80GiB meant (2^30 bytes each), or 80GB (10^9)?" in refused.stderr


def test_a_requirement_without_quotes_is_told_of_the_shell() -> None:
    """`--require fits,concurrency>=8` in a shell: what comes is the part before the `>`."""
    refused = run("llama-3-8b", "--device", "h100", "--require", "fits,concurrency")
    assert refused.exit_code == 2
    assert "quote it, --require 'concurrency>=8': without quotes a shell" in refused.stderr


@pytest.mark.parametrize(
    ("required", "holds"),
    [
        ("concurrency >= 8", True),
        (" fits , context > 4k", True),
        ("context>=8k", True),
        ("context > 8k", False),
        ("concurrency > 4000", False),
    ],
)
def test_requirements_may_have_blanks_and_be_strict(required: str, holds: bool) -> None:
    """Llama 3 8B has 8,192 positions: it holds that many, and no more."""
    found = engine("llama-3-8b", "--device", "h100", "--require", required)
    assert found["holds"] is holds


def test_two_lengths_that_differ_are_told_apart() -> None:
    """What fits by the estimates as they stand, and what does if all of them err."""
    asked = ("llama-3.1-70b", "--device", "h100", "--tp", "4", "--engine", "vllm")
    asked = (*asked, "--batch-size", "40", "--context", "32k")
    (change,) = [one for one in engine(*asked)["changes"] if one["change"] == "context"]
    most = engine(*asked)["max_context"]
    assert change["value"] < most
    text = " ".join(run(*asked).stdout.split())
    assert f"Largest context {most:,} (at batch size 40; {change['value']:,} surely)" in text
    assert f"a context of {change['value']:,} tokens" in text
