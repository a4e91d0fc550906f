"""Latents that are fitted to text: in every layout, no rung worse than the one before, and a run
that goes on with the layers of another ends with the same bytes."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from calibrated_models import CONFIGS
from conversions import load_whole
from headcount.convert.calibrate.calibrated_layers import calibrated_layers
from headcount.convert.conversion import convert
from headcount.convert.homes.latent import latent
from headcount.convert.merge.ladder import LATENT_QUALITIES, Ladder
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.plan.source import read_source

pytestmark = pytest.mark.needs_convert
MakeModel = Callable[..., Path]
GOOD, BEST = LATENT_QUALITIES["good"], replace(LATENT_QUALITIES["best"], reconstruct=6)
TOKENS = 1024
KINDS = ("weight", "bias")


def layers_of(folder: Path, prose: Path, ladder: Ladder, done: Any = lambda index: None) -> Any:
    source = read_source(folder)
    home = latent(source, Fraction(1, 4), None)
    return list(
        calibrated_layers(
            *(source, home.heads, ladder, str(prose), TOKENS, done, False), ranks=home.ranks
        )
    )


def tensors(layers: Any) -> dict[str, torch.Tensor]:
    return {name: value for layer in layers for name, value in layer.tensors.items()}


@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_no_rung_is_worse_than_the_one_before(
    model_type: str, make_model: MakeModel, prose: Path
) -> None:
    layers = layers_of(make_model(model_type), prose, BEST)
    assert len(layers) == 3
    for layer in layers:
        found = layer.measured["calibration"]
        errors = found["output_error"]
        assert errors["merged"] >= errors["refit"] >= errors["reconstructed"] * (1 - 1e-5)
        if found["mlp_error"] is not None:
            assert found["mlp_error"]["before"] >= found["mlp_error"]["after"]


@pytest.mark.parametrize("ladder", [Ladder(), GOOD, BEST], ids=["text", "good", "best"])
@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox"])
def test_layers_that_are_done_are_run_and_not_computed_again(
    model_type: str, ladder: Ladder, make_model: MakeModel, prose: Path
) -> None:
    folder = make_model(model_type)
    whole = layers_of(folder, prose, ladder)
    again = layers_of(folder, prose, ladder, lambda i: whole[i] if i < 2 else None)
    assert [layer is other for layer, other in zip(whole, again, strict=True)] == [
        True,
        True,
        False,
    ]
    mine, theirs = tensors(whole), tensors(again)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


def dense(model_type: str, state: dict[str, torch.Tensor], heads: int) -> dict[str, torch.Tensor]:
    """The tensors of the source's class that compute what the output does, multiplied by hand."""
    made = {n: value for n, value in state.items() if not n.endswith("latent_proj.weight")}
    for name in state.keys() - made.keys():
        stem, down = name.removesuffix("latent_proj.weight"), state[name]
        if model_type == "llama":
            for part in "kv":
                made[f"{stem}{part}_proj.weight"] = state[f"{stem}{part}_proj.weight"] @ down
            continue
        path = stem + {"gpt2": "c_attn", "gpt_neox": "query_key_value"}[model_type]
        weights, biases = ([made.pop(f"{path}.{p}.{kind}") for p in "qkv"] for kind in KINDS)
        weights[1:] = [weight @ down for weight in weights[1:]]
        for kind, parts in zip(KINDS, (weights, biases), strict=True):
            if model_type == "gpt2":
                joined = torch.cat(parts)
                made[f"{path}.{kind}"] = joined.T.contiguous() if joined.dim() > 1 else joined
            else:
                by_head = torch.stack([one.unflatten(0, (heads, -1)) for one in parts], 1)
                made[f"{path}.{kind}"] = by_head.flatten(0, 2)
    return made


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox"])
def test_the_output_runs_with_what_was_fitted(
    model_type: str, make_model: MakeModel, prose: Path, tmp_path: Path
) -> None:
    """The modelling file gives the logits of the source's class with the dense products."""
    folder = make_model(model_type)
    request = ConversionRequest(
        source=folder,
        target=tmp_path / "out",
        num_key_value_heads=None,
        latent=Fraction(1, 4),
        refit="mlp",
        calibration=str(prose),
        calibration_tokens=TOKENS,
    )
    convert(request, progress=False)
    ids = torch.randint(1, 200, (2, 16), generator=torch.Generator().manual_seed(0))
    source = AutoModelForCausalLM.from_pretrained(folder).eval()
    state = dense(
        model_type,
        load_file(tmp_path / "out" / "model.safetensors"),
        source.config.num_attention_heads,
    )
    wanted = type(source).from_pretrained(None, config=source.config, state_dict=state).eval()
    found = load_whole(tmp_path / "out")(ids).logits
    assert (found - wanted(ids).logits).abs().max() < 1e-4
    assert (found - source(ids).logits).abs().max() > 1e-2
