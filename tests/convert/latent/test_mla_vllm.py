"""vLLM itself on a model of `--home mla`: the tokens that it has room for, and how it goes on.

Its CPU build has kernels for latents of 512 with 64 that rotate, and blocks of 16 tokens.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from vllm_environment import greedy_tokens
from vllm_starts import Start, plan_of, started, vllm_python

from conversions import load_whole
from headcount.convert.conversion import convert
from headcount.convert.plan.request import ConversionRequest

pytestmark = [pytest.mark.slow, pytest.mark.needs_convert]
START = Start(memory=50_000_000, length=512, batched=512, block=16)
RANK, ROTATED = 512, 64
CONFIG: dict[str, Any] = {
    **{"hidden_size": 640, "head_dim": ROTATED, "num_attention_heads": 10},
    **{"num_key_value_heads": 10, "num_hidden_layers": 2, "intermediate_size": 192},
    **{"vocab_size": 320, "max_position_embeddings": START.length, "initializer_range": 0.1},
    **{"rms_norm_eps": 1e-5},
}
PROMPT = [5, 17, 33, 80, 7, 61, 42, 9, 200, 301]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_python(tmp_path_factory.mktemp("vllm"))


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
    log = started(python, converted, tmp_path / "start.log", START)
    plan = plan_of(converted, START)
    assert log.figures["kv_tokens"] == plan.pool.kv_tokens(plan.available, START.length)
    token = CONFIG["num_hidden_layers"] * (RANK + ROTATED) * 2  # float32 is served in 16 bit
    assert log.figures["kv_tokens"] == START.memory // (START.block * token) * START.block


def test_it_goes_on_as_transformers_does(python: Path, converted: Path) -> None:
    """So the norm of the latent is the same in both, which take its epsilon from other places."""
    model = load_whole(converted)
    ids = torch.tensor([PROMPT])
    options = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0}
    with torch.no_grad():
        expected = model.generate(ids, max_new_tokens=24, do_sample=False, **options)
    assert greedy_tokens(python, converted, PROMPT, 24) == expected[0, len(PROMPT) :].tolist()
