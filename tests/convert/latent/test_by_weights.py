"""What is known of an attention's inputs without a text: by the class's own norm, held against the
formula that each of these classes computes."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headcount.convert.latent.by_weights import known_inputs
from headcount.convert.plan.source import read_source
from headcount.convert.stream.reader import SourceReader
from headcount.running.built.meta_model import build_on_meta

pytestmark = pytest.mark.needs_convert
LLAMA = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 96},
    **{"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48, "head_dim": 8},
}
GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 96}
# Where the norm of layer 1 lies, and what its class adds to the weight.
NORMS = {
    "llama": (LLAMA, "model.layers.1.input_layernorm", 0.0),
    "gemma": (LLAMA, "model.layers.1.input_layernorm", 1.0),
    "gemma3_text": (LLAMA, "model.layers.1.input_layernorm", 1.0),
    "nemotron": (LLAMA, "model.layers.1.input_layernorm", 1.0),
    "gpt2": (GPT2, "transformer.h.1.ln_1", 0.0),
}


@pytest.mark.parametrize("model_type", NORMS)
def test_inputs_are_as_the_norm_in_front_leaves_white_ones(model_type: str, tmp_path: Path) -> None:
    settings, path, added = NORMS[model_type]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**settings))
    norm = model.get_submodule(path)
    for parameter in norm.parameters():
        parameter.data = torch.randn_like(parameter)
    model.save_pretrained(tmp_path)
    source = read_source(tmp_path)
    with SourceReader(source.checkpoint.files) as reader, torch.no_grad():
        classes = build_on_meta(source.config)
        found = known_inputs(source, classes, (1, False), 32, reader.tensor)
    gain = norm.weight.data.double() + added
    bias = getattr(norm, "bias", None)
    shift = torch.zeros(32).double() if bias is None else bias.data.double()
    torch.testing.assert_close(
        found, gain.square().diag() + torch.outer(shift, shift), rtol=3e-5, atol=1e-5
    )
