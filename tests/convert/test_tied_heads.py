"""A tied head that is stored: transformers says what it loads, of the source and the result."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main

pytestmark = pytest.mark.needs_convert

SIZES = {
    "llama": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
    "gpt2": {"n_embd": 32, "n_head": 8, "n_layer": 2, "n_positions": 64},
}
HEADS = {"llama": {"num_attention_heads": 8, "num_key_value_heads": 8}, "gpt2": {}}
EMBEDDING = {"llama": "model.embed_tokens.weight", "gpt2": "transformer.wte.weight"}


def saved(folder: Path, model_type: str, stored: str) -> Path:
    """A tied model whose file holds both matrices, `same` or `differ`, or the `head` alone."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        model_type, vocab_size=96, bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
        **SIZES[model_type], **HEADS[model_type],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    if stored == "differ":
        tensors["lm_head.weight"] = torch.randn_like(tensors["lm_head.weight"])
    if stored == "head":
        del tensors[EMBEDDING[model_type]]
    model.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    said = json.loads((folder / "config.json").read_text())
    said |= {"tie_word_embeddings": True, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def loaded(folder: Path) -> tuple[bool, Any]:
    """Whether transformers ties the head, and its values. It lacks nothing."""
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, trust_remote_code=True
    )
    assert not info["missing_keys"]
    head = model.get_output_embeddings().weight
    return head is model.get_input_embeddings().weight, head


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
@pytest.mark.parametrize("stored", ["same", "differ", "head"])
def test_the_result_has_the_head_that_transformers_loads(
    tmp_path: Path, model_type: str, stored: str
) -> None:
    import torch

    source = saved(tmp_path / "source", model_type, stored)
    tied, head = loaded(source)
    assert tied == (stored != "differ")
    target = tmp_path / "target"
    run = CliRunner().invoke(main, ["convert", str(source), str(target), "--kv-heads", "4"])
    assert run.exit_code == 0, run.output
    assert loaded(target)[0] == tied
    assert torch.equal(loaded(target)[1], head)
    flag = json.loads((target / "config.json").read_text())["tie_word_embeddings"]
    assert flag == (stored != "differ")
    assert ("tie_word_embeddings: true -> false" in run.output) == (stored == "differ")
