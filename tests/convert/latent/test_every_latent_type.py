"""Every causal type of transformers with latents of full rank computes what it did before.

The whole mapping is swept, with a K/V head for each query head and with fewer: a type is converted
and compared, or refused with its reason. `pytest -m "" -s` prints the table.
"""

import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

import grouped_models
import mha_types
from conversions import load_whole
from every_type import whole_jobs
from headcount.arch.our_types import base_type
from headcount.audit import audit_model
from headcount.convert.conversion import convert
from headcount.convert.families import with_latents
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.plan.request import ConversionRequest
from headcount.sources.json_file import read_json

pytestmark = pytest.mark.needs_convert

TYPES = tuple(dict.fromkeys(t for t, task in whole_jobs() if task == "causal"))
CLAIMED = frozenset(with_latents())
# A K/V head for each query head, and two.
COUNTS = (8, 2)
SAMPLE = (
    *(("llama", 2), ("qwen3", 2), ("phi3", 2), ("gpt_neox", 8), ("gpt2", 8), ("opt", 8)),
    *(("cohere2", 2), ("olmo2", 2), ("stablelm", 8), ("gemma3_text", 2), ("mixtral", 2)),
    ("falcon_h1", 2),  # attention beside recurrence, and multipliers that its model fills in
)
# Of the largest logit, in float64: some classes compute a part in float32 whatever the weights are
# (rotations, norms, routers, ALiBi).
ROUNDED = 1e-5
# Its class does not run in float64: it asks for that type's smallest number in float32.
FLOAT32 = ("xglm",)
ATTEMPTS = 10
# What a config may ask for and latents are not for: the sweep leaves it out.
PLAIN = {
    "is_decoder": True,
    "add_cross_attention": False,
    "num_kv_shared_layers": 0,
    "attention_k_eq_v": False,
}
OPTIONS = {"attn_implementation": "eager"}


def built(model_type: str, kv: int, folder: Path) -> PreTrainedModel:
    """A tiny model in `folder`, from the first config that its class takes and runs."""
    error: Exception | None = None
    for seed in range(ATTEMPTS):
        try:
            values = grouped_models.tiny_config(model_type, seed, "causal")
            values = grouped_models.with_heads(values, kv)
            values |= {k: v for k, v in PLAIN.items() if k in values or k == "is_decoder"}
            model = grouped_models.saved(values, "causal", folder, "float32")
            if not _logits(loaded(folder, type(model))).isfinite().all():
                raise ValueError("its own logits are not finite")
            return model
        except Exception as failure:  # a combination that the class refuses, or cannot run
            error = failure
    try:
        model = mha_types.tiny_model(model_type, "causal", dtype=torch.float32)
    except Exception:
        raise grouped_models.NotBuildableError(f"{model_type}: {error}") from error
    model.save_pretrained(folder)
    return model


def loaded(folder: Path, model_class: Any) -> PreTrainedModel:
    """In float64, with experts that run in it."""
    model_type = base_type(read_json(folder / "config.json")["model_type"])
    dtype = torch.float32 if model_type in FLOAT32 else torch.float64
    options = {**OPTIONS, "dtype": dtype}
    try:
        model = load_whole(folder, model_class, experts_implementation="eager", **options)
    except (TypeError, ValueError):  # a class without experts
        model = load_whole(folder, model_class, **options)
    mha_types.settle(model)
    return model  # type: ignore[no-any-return]


@torch.no_grad()
def _logits(model: PreTrainedModel) -> torch.Tensor:
    return torch.as_tensor(model(input_ids=grouped_models.tokens(model)).logits)


def _generated(model: PreTrainedModel) -> torch.Tensor:
    found: torch.Tensor = model.generate(  # type: ignore[operator]
        grouped_models.tokens(model), max_new_tokens=6, do_sample=False
    )
    return found


def compared(model_type: str, kv: int, folder: Path) -> str:
    """Converts with latents of full rank, asserts that nothing changed, and says what came of
    it."""
    try:
        model = built(model_type, kv, folder / "source")
    except grouped_models.NotBuildableError as error:
        assert model_type not in CLAIMED, error
        return f"not built: {str(error)[:80]}"
    request = ConversionRequest(
        source=folder / "source",
        target=folder / "out",
        num_key_value_heads=None,
        latent=Fraction(1),
    )
    try:
        convert(request, progress=False)
    except CannotConvertError as error:
        assert model_type not in CLAIMED, error
        return f"refused: {str(error).rpartition(': ')[2]}"
    source, result = loaded(folder / "source", type(model)), loaded_latent(folder / "out")
    before, after = _logits(source), _logits(result)
    difference = float((before - after).abs().max() / before.abs().max())
    assert difference <= ROUNDED, difference
    assert torch.equal(_generated(source), _generated(result))
    return f"logits differ by {difference:.0e} of the largest"


def loaded_latent(folder: Path) -> PreTrainedModel:
    assert not [f for f in audit_model(str(folder)).findings if f.severity == "error"]
    return loaded(folder, AutoModelForCausalLM)


@pytest.mark.parametrize(("model_type", "kv"), SAMPLE)
def test_a_type_of_each_kind_computes_the_same(model_type: str, kv: int, tmp_path: Path) -> None:
    assert compared(model_type, kv, tmp_path).startswith("logits")


@pytest.mark.slow
@pytest.mark.parametrize("kv", COUNTS)
@pytest.mark.parametrize("model_type", TYPES)
def test_every_type_computes_the_same_or_says_why_not(
    model_type: str, kv: int, tmp_path: Path, table: list[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.append(f"{model_type:26} {kv} K/V heads: {compared(model_type, kv, tmp_path)}")


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """The lines of the table, printed at the end."""
    lines: list[str] = []
    yield lines
    print("", *lines, sep="\n")
