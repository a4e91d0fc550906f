"""vLLM's server on converted models: the lines that it logs against plan and reconcile."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from vllm_environment import VERSION, refused
from vllm_starts import Start, plan_of, started, vllm_python

from headcount.cli import main
from launches import launches

pytestmark = [pytest.mark.slow, pytest.mark.needs_convert]
START = Start(memory=50_000_000, length=512, batched=256)
SIZES = {
    **{"hidden_size": 128, "head_dim": 32, "num_attention_heads": 8, "num_hidden_layers": 3},
    **{"intermediate_size": 192, "num_key_value_heads": 8, "max_position_embeddings": START.length},
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_python(tmp_path_factory.mktemp("vllm"))


@pytest.mark.parametrize(
    ("name", "heads", "options"),
    [
        ("llama", 2, {}),
        ("llama", 1, {"num_hidden_layers": 5}),
        ("mistral", 2, {"sliding_window": 64}),
        ("gemma2", 4, {"sliding_window": 64, "num_hidden_layers": 4}),
    ],
)
def test_a_converted_model_starts_with_the_cache_that_is_planned(
    name: str,
    heads: int,
    options: dict[str, Any],
    python: Path,
    save_model: Any,
    tmp_path: Path,
) -> None:
    from conversions import run

    target = tmp_path / "grouped"
    run(save_model(name, tokens="none", **{**SIZES, **options}), target, heads)
    log = started(python, target, tmp_path / "start.log", START)
    plan = plan_of(target, START)
    concurrency = plan.pool.concurrency(plan.available, START.length)
    assert log.settings["context"] == START.length
    assert log.figures["kv_tokens"] == plan.pool.kv_tokens(plan.available, START.length)
    assert log.figures["concurrency"] == float(f"{concurrency:.2f}")
    found = CliRunner().invoke(
        main, ["reconcile", str(tmp_path / "start.log"), "--model", str(target)]
    )
    assert "2 of 2 figures agree" in found.output, found.output


def test_every_command_is_taken_by_its_own_parser(python: Path) -> None:
    found = [launch.command for launch in launches("vllm", VERSION, whole=True)]
    commands = sorted({command for command in found if command})
    assert len(commands) > 50
    assert refused(python, commands) == []
    wrong = f"{commands[0]} --no-such-option", "vllm serve x --max-model-len many"
    assert len(refused(python, wrong)) == 2
