"""Copying scores against the whole circuit, a row and a column a token, of modules of the class."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from headcount.cli import main
from headcount.heads.atlas import Atlas
from headcount.heads.atlas_run import make_atlas
from headcount.heads.heads_request import HeadsRequest
from headcount.heads.norm_gains import gain_of
from headcount.running.load import load_model
from headcount.running.placement import Placement
from headcount.running.runnable import open_runnable
from planted_heads import plant

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]


def atlas_of(folder: Path) -> Atlas:
    request = HeadsRequest(model=str(folder), tokens=8, sequences=1)
    return make_atlas(request, folder, "model")


def with_random_norms(folder: Path) -> Any:
    """The model in `folder`, saved anew with gains that differ."""
    found = open_runnable(str(folder))
    model = load_model(found, dtype=None, place=Placement(inputs=torch.device("cpu"))).model
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and "bias" not in name:
                parameter.copy_(torch.rand(len(parameter)) * 2)
    model.save_pretrained(folder)
    return model


def circuit(model: Any, head: int, layer: int, one: float) -> torch.Tensor:
    """W_U W_O W_V W_E of a head, [tokens, tokens], with gains of norms that are `one` + weight."""
    block, config = model.model.layers[layer], model.config
    size, group = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    unembedding = model.lm_head.weight - model.lm_head.weight.mean(dim=0)
    rows = slice(head // group * size, (head // group + 1) * size)
    values = block.self_attn.v_proj.weight[rows] * (one + block.input_layernorm.weight)
    output = block.self_attn.o_proj.weight[:, head * size : (head + 1) * size]
    after = one + model.model.norm.weight
    if one == 1:  # Gemma 2 has a norm behind the attention, too
        after = after * (1 + block.post_attention_layernorm.weight)
    made: torch.Tensor = unembedding @ (after[:, None] * output)
    return made @ (values @ model.model.embed_tokens.weight.T)


@pytest.mark.parametrize(("name", "one"), [("llama", 0.0), ("gemma2", 1.0)])
def test_copying_is_that_of_the_circuit_over_all_tokens(
    save_model: SaveModel, name: str, one: float
) -> None:
    folder = save_model(name)
    model = with_random_norms(folder)
    for found in atlas_of(folder).attentions:
        for head in found.heads:
            whole = circuit(model, head.head, found.attention.layer, one)
            eigenvalues = torch.linalg.eigvals(whole.detach().double())
            expected = (eigenvalues.sum().real / eigenvalues.abs().sum()).item()
            assert head.scores.copying == pytest.approx(expected, abs=1e-3)


def test_a_gain_is_what_a_norm_multiplies_by() -> None:
    layer, rms = torch.nn.LayerNorm(6, eps=0), torch.nn.RMSNorm(6, eps=0)
    with torch.no_grad():
        for norm in (layer, rms):
            norm.weight.copy_(torch.arange(6.0) - 2)
        layer.bias.fill_(7)
    for norm in (layer, rms):
        gain = gain_of(norm)
        assert gain is not None and torch.allclose(gain, torch.arange(6.0) - 2, atol=1e-6)
    assert gain_of(torch.nn.LayerNorm(5)) is None


def test_copying_is_left_out_where_embeddings_are_of_another_width(save_model: SaveModel) -> None:
    atlas = atlas_of(save_model("opt", word_embed_proj_dim=16))
    assert all(head.scores.copying is None for _, head in atlas.heads())
    assert any("copying is told of no layer" in line for line in atlas.warnings)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.v_proj.weight"])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, name: str) -> None:
    """The last norm is read by no attention: patterns alone would not show it."""
    model = plant("llama").model
    with torch.no_grad():
        model.get_parameter(name).flatten()[0] = float("nan")
    model.save_pretrained(tmp_path)
    result = CliRunner().invoke(main, ["heads", str(tmp_path), "--tokens", "8"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "not finite" in result.stderr
