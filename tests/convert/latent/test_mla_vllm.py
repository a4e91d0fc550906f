"""vLLM itself on a model of `--home mla`: the tokens that it has room for, and how it goes on.

Its CPU build has kernels for latents of 512 with 64 that rotate, and blocks of 16 tokens.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from vllm_environment import (
    VERSION,
    NoEnvironmentError,
    greedy_tokens,
    interpreter,
    start_log,
)

from conversions import load_whole
from headcount.audit import audit_model
from headcount.convert.conversion import convert
from headcount.convert.plan.request import ConversionRequest
from headcount.plan.command import planned
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import plan_model
from headcount.plan.reconcile.log import log_of_lines
from headcount.plan.request import PlanRequest

pytestmark = [pytest.mark.slow, pytest.mark.needs_convert]
MEMORY, LENGTH, BLOCK = 50_000_000, 512, 16  # bytes, tokens, tokens
RANK, ROTATED = 512, 64
CONFIG: dict[str, Any] = {
    **{"hidden_size": 512, "head_dim": ROTATED, "num_attention_heads": 10},
    **{"num_key_value_heads": 10, "num_hidden_layers": 2, "intermediate_size": 192},
    **{"vocab_size": 320, "max_position_embeddings": LENGTH, "initializer_range": 0.1},
    **{"rms_norm_eps": 1e-5},
}
PROMPT = [5, 17, 33, 80, 7, 61, 42, 9, 200, 301]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return interpreter(tmp_path_factory.mktemp("vllm"))
    except NoEnvironmentError as error:
        pytest.skip(f"vLLM cannot be installed here: {error}")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mla")
    torch.manual_seed(0)
    config = CONFIG_MAPPING["llama"](**CONFIG)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "source")
    request = ConversionRequest(
        source=folder / "source",
        target=folder / "out",
        num_key_value_heads=None,
        latent=RANK + ROTATED,
        home="mla",
    )
    convert(request, progress=False)
    return folder / "out"


def test_it_starts_with_the_cache_that_is_planned(
    python: Path, converted: Path, tmp_path: Path
) -> None:
    given = ("--kv-cache-memory-bytes", str(MEMORY), "--max-num-batched-tokens", str(LENGTH))
    said = start_log(python, converted, tmp_path / "start.log", *given)
    log = log_of_lines(said.splitlines())
    plan = plan_model(
        planned(audit_model(str(converted))),
        PlanRequest(
            engine=ENGINE.name,
            version=ENGINE.releases.parse(VERSION),
            kv_memory=MEMORY,
            context=LENGTH,
            block_size=BLOCK,
            max_num_batched_tokens=LENGTH,
            async_scheduling=False,
        ),
    )
    assert log.figures["kv_tokens"] == plan.pool.kv_tokens(plan.available, LENGTH)
    token = CONFIG["num_hidden_layers"] * (RANK + ROTATED) * 4
    assert log.figures["kv_tokens"] == MEMORY // (BLOCK * token) * BLOCK


def test_it_goes_on_as_transformers_does(
    python: Path, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the norm of the latent is the same in both, which take its epsilon from other places."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = load_whole(converted)
    ids = torch.tensor([PROMPT])
    options = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0}
    with torch.no_grad():
        expected = model.generate(ids, max_new_tokens=24, do_sample=False, **options)
    assert greedy_tokens(python, converted, PROMPT, 24) == expected[0, len(PROMPT) :].tolist()
