"""vLLM's server on converted models: the lines that it logs against plan and reconcile."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from vllm_environment import VERSION, NoEnvironmentError, interpreter, refused, start_log

from headcount.audit.auditing import audit_model
from headcount.cli import main
from headcount.plan.command import planned
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import plan_model
from headcount.plan.reconcile.log import log_of_lines
from headcount.plan.request import PlanRequest
from launches import launches

pytestmark = [pytest.mark.slow, pytest.mark.needs_convert]
MEMORY = 50_000_000  # bytes for the cache
LENGTH = 512
SIZES = {
    **{"hidden_size": 128, "head_dim": 32, "num_attention_heads": 8, "num_hidden_layers": 3},
    **{"intermediate_size": 192, "num_key_value_heads": 8, "max_position_embeddings": LENGTH},
}
# Tokens; and a CPU's scheduler does not run ahead (CpuPlatform.check_and_update_config of
# vllm/platforms/cpu.py).
CPU_BLOCK = 128


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return interpreter(tmp_path_factory.mktemp("vllm"))
    except NoEnvironmentError as error:
        pytest.skip(f"vLLM cannot be installed here: {error}")


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
    given = ("--kv-cache-memory-bytes", str(MEMORY), "--max-num-batched-tokens", "256")
    said = start_log(python, target, tmp_path / "start.log", *given)
    log = log_of_lines(said.splitlines())
    plan = plan_model(
        planned(audit_model(str(target))),
        PlanRequest(
            engine=ENGINE.name,
            version=ENGINE.releases.parse(VERSION),
            kv_memory=MEMORY,
            context=LENGTH,
            block_size=CPU_BLOCK,
            max_num_batched_tokens=256,
            async_scheduling=False,
        ),
    )
    concurrency = plan.pool.concurrency(plan.available, LENGTH)
    assert log.settings["context"] == LENGTH
    assert log.figures["kv_tokens"] == plan.pool.kv_tokens(plan.available, LENGTH)
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
