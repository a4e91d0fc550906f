"""Classes that know one number of K/V heads for all layers, with another one in each layer."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from conversion_limits import BY_LAYER
from conversions import load_whole, run
from headcount.convert.plan.errors import CannotConvertError
from mha_types import cached_heads, greedy, logits, settle

pytestmark = pytest.mark.needs_convert
BuildModel = Callable[..., Any]
HEADS, KV, WANTED = 8, 4, {0: 2, 1: 1}
SIZE = {"hidden_size": 64, "num_attention_heads": HEADS, "sliding_window": 32}
PLAIN = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, pad_token_id=0)
assert not any(name.startswith("headcount.") for name in sys.modules)
print(type(model).__name__, [layer.self_attn.k_proj.out_features for layer in model.model.layers])
"""


def made(build_model: BuildModel, model_type: str, folder: Path, kv: int = KV) -> Path:
    """A model in float64 whose layers have equal K/V heads in runs, as many runs as are WANTED."""
    model = build_model(model_type, **SIZE, num_key_value_heads=kv).double()
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ("k_proj", "v_proj"):
            layer = int(name.split("layers.")[1].partition(".")[0])
            for tensor in (module.weight, module.bias):
                if tensor is not None:
                    heads = tensor.data.unflatten(0, (WANTED[layer], kv // WANTED[layer], -1))
                    heads[:] = heads[:, :1].clone()
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kv", [KV, HEADS])
@pytest.mark.parametrize("model_type", sorted(BY_LAYER))
def test_each_layer_has_its_own(
    build_model: BuildModel, tmp_path: Path, model_type: str, kv: int
) -> None:
    if kv == HEADS and model_type not in ("llama", "qwen3", "phi"):
        pytest.skip("one of a kind is enough")
    source = made(build_model, model_type, tmp_path / "source", kv)
    report = run(source, tmp_path / "out", kv=WANTED)
    assert report.plan.home.startswith("custom")
    options = {"dtype": torch.float64, "attn_implementation": "eager"}
    before = AutoModelForCausalLM.from_pretrained(source, **options).eval()
    after = load_whole(tmp_path / "out", **options)
    for model in (before, after):
        settle(model)
    assert (logits(after) - logits(before)).abs().max() < 1e-10
    sequences, cache = greedy(after)
    assert torch.equal(sequences, greedy(before)[0])
    assert [layer.keys.shape[1] for layer in cache.layers] == [2, 1]
    assert cached_heads(cache) == {1, 2}


def test_the_result_is_merged_further(build_model: BuildModel, tmp_path: Path) -> None:
    """From 2 and 1 K/V heads to 1 in each; the class is still built with the first number."""
    source = made(build_model, "llama", tmp_path / "source")
    run(source, tmp_path / "some", kv=WANTED)
    run(tmp_path / "some", tmp_path / "fewer", kv=1)
    result = load_whole(tmp_path / "fewer")
    settle(result)
    assert cached_heads(greedy(result)[1]) == {1}


def test_plain_transformers_loads_it(build_model: BuildModel, tmp_path: Path) -> None:
    source = made(build_model, "llama", tmp_path / "source")
    run(source, tmp_path / "out", kv=WANTED)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "GroupedLlamaForCausalLM [16, 8]"


def test_a_class_that_was_not_compared_is_refused(build_model: BuildModel, tmp_path: Path) -> None:
    build_model("olmo2", **SIZE, num_key_value_heads=KV).save_pretrained(tmp_path / "source")
    with pytest.raises(CannotConvertError, match="one number of K/V heads for all layers"):
        run(tmp_path / "source", tmp_path / "out", kv=WANTED)


def test_the_type_may_follow_from_the_name_of_the_class(
    build_model: BuildModel, tmp_path: Path
) -> None:
    source = made(build_model, "llama", tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    del config["model_type"]
    (source / "config.json").write_text(json.dumps(config))
    written = run(source, tmp_path / "out", WANTED).plan.config
    assert written["model_type"] == "headcount_llama"
    assert written["num_key_value_heads_per_layer"] == list(WANTED.values())
