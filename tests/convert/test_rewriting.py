"""Heads are merged in the source's own tensors, and then pooled in every home.

The truth are models that compute the same as one with fewer heads: what is merged well comes back.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conversions import load_whole, run
from grouped_models import build_pair, load
from grouped_models import logits as logits_of
from mha_types import KV, logits, tie, tiny_model
from turned import turned_model, widened

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9]])
LIMIT = 1e-6  # moments are squares, so that half of the digits of float64 are left
ROUNDED = 1e-4  # classes that compute norms and rotations in float32


@pytest.mark.parametrize("method", ["renorm", "align", "merge"])
def test_equal_heads_stay_as_they_are_byte_for_byte(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path, method: str
) -> None:
    original = grouped("llama", 12, 4, "bfloat16")
    report = run(repeated(original, 3), tmp_path / "back", 4, method=method)
    name = "model.safetensors"
    assert (report.target / name).read_bytes() == (original / name).read_bytes()
    assert all(layer.lossless and layer.key == layer.value == 0 for layer in report.layers)


@pytest.mark.parametrize("model_type", ["llama", "cohere", "phi3", "gpt_oss", "falcon"])
@pytest.mark.parametrize("method", ["align", "merge"])
def test_heads_that_differ_by_what_is_free_are_merged_without_a_loss(
    model_type: str, method: str, tmp_path: Path
) -> None:
    """Native classes; fused projections of two kinds among them."""
    pair = build_pair(model_type, "causal", tmp_path / "models")
    source = widened(pair.repeated)
    turned_model(source, tmp_path / "turned")
    options = {"method": method, "grouping": "similar"}
    report = run(tmp_path / "turned", tmp_path / "back", pair.kv, **options)
    before = logits_of(load(pair, source), torch.float64)
    after = logits_of(load(pair, report.target), torch.float64)
    if method == "merge":
        assert (after - before).abs().max().item() <= ROUNDED
        assert all(layer.key < 1e-6 and layer.value < 1e-6 for layer in report.layers)
    assert all(layer.key_mean is not None for layer in report.layers)
    assert all(layer.key_mean > 0.1 < layer.value_mean for layer in report.layers)
    assert all(layer.key <= layer.key_mean for layer in report.layers)
    mean = run(tmp_path / "turned", tmp_path / "mean", pair.kv)
    of_mean = logits_of(load(pair, mean.target), torch.float64)
    assert (of_mean - before).abs().max().item() > 0.1


@pytest.mark.parametrize(
    ("model_type", "home", "kv"),
    [
        ("gpt2", "custom", KV),
        ("gpt2", "rehome", 1),
        ("gpt_neox", "rehome", KV),
        ("codegen", "rehome", KV),
        ("gptj", "custom", KV),
        ("bloom", "custom", KV),
        ("opt", "rehome", 1),
    ],
)
def test_every_home_holds_what_was_merged(
    model_type: str, home: str, kv: int, tmp_path: Path
) -> None:
    model = tiny_model(model_type, "causal")
    tie(model, kv)
    model.save_pretrained(tmp_path / "tied")
    free = turned_model(tmp_path / "tied", tmp_path / "turned")
    grouping = "similar" if free["order"] else "contiguous"
    report = run(
        tmp_path / "turned",
        tmp_path / "out",
        kv,
        method="merge",
        grouping=grouping,
        home=home,
    )
    result = load_whole(report.target, trust_remote_code=False, dtype=torch.float64)
    assert (logits(result) - logits(model)).abs().max().item() <= LIMIT
