"""A model that keeps latents: it computes what its source does, and keeps nothing else."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DynamicCache,
    PreTrainedModel,
)

from conversions import contents, generated, load_whole
from headcount.audit import audit_model
from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.request import ConversionRequest
from headcount.model.mixers import LowRankAttention
from headcount.running.measured_cache import measured_cache_bytes

pytestmark = pytest.mark.needs_convert

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 96, "initializer_range": 0.3}
LLAMA = {**SIZES, "num_attention_heads": 4, "intermediate_size": 48}
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "mha": ("llama", LLAMA),
    "gqa": ("llama", {**LLAMA, "num_key_value_heads": 2}),
    "biases": ("qwen2", {**LLAMA, "num_key_value_heads": 2}),
    "norms": ("qwen3", {**LLAMA, "num_key_value_heads": 2, "head_dim": 8}),
    "window": ("mistral", {**LLAMA, "num_key_value_heads": 2, "sliding_window": 5}),
    "kinds": ("gemma3_text", {**LLAMA, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5,
              "layer_types": ["sliding_attention", "full_attention"]}),
    "pairs": ("gptj", {"n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4, "vocab_size": 96,
              "initializer_range": 0.3}),
    "partial": ("gpt_neox", {**LLAMA, "rotary_pct": 0.5}),
    "fused": ("gpt2", {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 96,
              "initializer_range": 0.3}),
    "alibi": ("bloom", {"hidden_size": 32, "n_head": 4, "n_layer": 2, "vocab_size": 96,
              "initializer_range": 0.3}),
}  # fmt: skip
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9], [11, 3, 90, 21, 65, 77, 30, 4]])
LIMIT = 1e-10  # in float64
ROUNDED = 1e-5  # of what classes compute in float32 (ALiBi, eager attention), in another order


def build(name: str, folder: Path, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """The model `name` of SOURCES, saved in `folder`."""
    torch.manual_seed(0)
    model_type, config = SOURCES[name]
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**config)).to(dtype).eval()
    for parameter in model.parameters():  # biases and norms, too
        parameter.data += torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder)
    return model  # type: ignore[no-any-return]


def latents(source: Path, target: Path, size: Any, **options: Any) -> ConversionReport:
    request = ConversionRequest(
        source=source, target=target, num_key_value_heads=None, latent=size, **options
    )
    return convert(request, progress=False)


@pytest.fixture(scope="module", params=SOURCES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Path]]:
    """A model, the same with latents of full rank, and the folder of the latter."""
    folder = tmp_path_factory.mktemp(request.param)
    build(request.param, folder / "source")
    latents(folder / "source", folder / "out", Fraction(1))
    model, other = (load_whole(folder / f, dtype=torch.float64) for f in ("source", "out"))
    with torch.no_grad():
        yield model, other, folder / "out"


def cache_of(output: Any) -> Any:
    return output.get("cache", output.get("past_key_values"))


def agree(pair: Any, limit: float = LIMIT, **options: Any) -> Any:
    """Both models generate the same, by the same logits; returns what the latent one gave."""
    model, other, _ = pair
    expected, found = (
        generated(model, TOKENS, tokens=7, **options),
        generated(other, TOKENS, tokens=7, **options),
    )
    assert torch.equal(found.sequences, expected.sequences)
    for one, two in zip(expected.logits, found.logits, strict=True):
        if one.isnan().any():
            pytest.skip("its class gives NaN itself")
        assert (one - two).abs().max() <= limit
    return found


def test_full_rank_computes_the_same(pair: Any) -> None:
    model, other, _ = pair
    assert (model(TOKENS).logits - other(TOKENS).logits).abs().max() <= LIMIT
    agree(pair)


def test_the_cache_holds_latents_and_nothing_else(pair: Any) -> None:
    """As many bytes as the audit of the output says, in layers that hold one head of keys."""
    cache = cache_of(agree(pair))
    spec = audit_model(str(pair[2])).spec
    ranks = [
        m.latent_rank for la in spec.layers for m in la.mixers if isinstance(m, LowRankAttention)
    ]
    assert [layer.keys.shape[1::2] for layer in cache.layers] == [(1, rank) for rank in ranks]
    assert {layer.values.numel() for layer in cache.layers} == {0}
    tokens = TOKENS.shape[1] + 7 - 1
    predicted = spec.cache_bytes(tokens=tokens, batch_size=len(TOKENS), bits=64)
    assert measured_cache_bytes(cache) == predicted


def test_rows_that_are_padded_at_the_left(pair: Any) -> None:
    mask = torch.ones_like(TOKENS)
    mask[0, :3] = 0
    agree(pair, attention_mask=mask)


def test_beams(pair: Any) -> None:
    agree(pair, num_beams=3)


def test_a_static_cache(pair: Any) -> None:
    mask = torch.ones_like(TOKENS)
    mask[0, :3] = 0
    options = {"cache_implementation": "static", "disable_compile": True}
    found = agree(pair, attention_mask=mask, **options)
    assert {layer.keys.shape[1] for layer in cache_of(found).layers} == {1}


def test_a_prompt_in_two_pieces(pair: Any) -> None:
    """The second piece is several tokens at once, whose keys meet those of the first."""
    model, other, _ = pair
    whole = model(TOKENS).logits
    cache = DynamicCache(config=other.config)
    key = "cache" if "cache" in inspect.signature(other.forward).parameters else "past_key_values"
    pieces = [other(piece, **{key: cache}, use_cache=True).logits for piece in TOKENS.split(3, 1)]
    assert (torch.cat(pieces, 1) - whole).abs().max() <= ROUNDED


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_kernels(pair: Any, attention: str) -> None:
    _, other, folder = pair
    if attention == "sdpa" and not other._supports_sdpa:
        pytest.skip("its class has none")
    options = {"dtype": torch.float64, "attn_implementation": attention}
    source, loaded = (load_whole(f, **options) for f in (folder.parent / "source", folder))
    limit = ROUNDED if attention == "eager" else LIMIT
    assert (loaded(TOKENS).logits - source(TOKENS).logits).abs().max() <= limit
    agree((source, loaded, folder), limit)


def test_it_can_be_saved_and_loaded_again(pair: Any, tmp_path: Path) -> None:
    _, other, folder = pair
    other.save_pretrained(tmp_path)
    names = {"modeling_headcount.py", "modeling_headcount_latent.py", "headcount_factored.py"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    again = load_whole(tmp_path, dtype=torch.float64)
    assert torch.equal(again(TOKENS).logits, other(TOKENS).logits)
    before, after = (json.loads((f / "config.json").read_text()) for f in (folder, tmp_path))
    assert after["latent_ranks"] == before["latent_ranks"]
    assert after["latent_projections"] == before["latent_projections"]
    assert not [f for f in audit_model(str(tmp_path)).findings if f.severity == "error"]


def test_frequencies_that_follow_the_length_are_those_of_the_whole_text(tmp_path: Path) -> None:
    """With dynamic NTK a cache of keys holds rotations of lengths that are gone. Rebuilt keys have
    those of now: in one layer, what the source computes without a cache. (In deeper layers they are
    made of hidden states of then, with either cache.)"""
    torch.manual_seed(0)
    values: dict[str, Any] = {
        **{**LLAMA, "num_hidden_layers": 1, "max_position_embeddings": 10},
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    }
    config = CONFIG_MAPPING["llama"](**values)
    AutoModelForCausalLM.from_config(config).double().save_pretrained(tmp_path / "source")
    latents(tmp_path / "source", tmp_path / "out", Fraction(1))
    model, other = (load_whole(tmp_path / f, dtype=torch.float64) for f in ("source", "out"))
    with torch.no_grad():
        expected = generated(model, TOKENS, tokens=7, use_cache=False)
        found = generated(other, TOKENS, tokens=7)
        stale = generated(model, TOKENS, tokens=7)
    assert found.sequences.shape[1] > 10
    assert torch.equal(found.sequences, expected.sequences)
    pairs = zip(expected.logits, found.logits, strict=True)
    assert max(float((one - two).abs().max()) for one, two in pairs) <= LIMIT
    pairs = zip(expected.logits, stale.logits, strict=True)
    assert max(float((one - two).abs().max()) for one, two in pairs) > 1e-3


def test_training_reaches_every_parameter(pair: Any) -> None:
    with torch.enable_grad():
        model = load_whole(pair[2], dtype=torch.float64).train()
        model(TOKENS, labels=TOKENS).loss.backward()
    lost = [name for name, p in model.named_parameters() if p.grad is None]
    assert not lost


REMOTE = """
import sys
from transformers import AutoModelForCausalLM
import torch
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
assert "headcount" not in sys.modules, "the folder's own code is to be run"
made = model.generate(torch.tensor([[5, 17, 33]]), max_new_tokens=3, do_sample=False)
print(type(model).__name__, made.tolist())
"""


def test_plain_transformers_loads_it_with_remote_code(tmp_path: Path) -> None:
    build("gqa", tmp_path / "source", torch.float32)
    latents(tmp_path / "source", tmp_path / "out", Fraction(1, 2))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", REMOTE, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("LatentLlamaForCausalLM")


@pytest.mark.parametrize("name", ["gqa", "fused"])
def test_a_smaller_rank_is_smaller_and_runs(name: str, tmp_path: Path) -> None:
    model = build(name, tmp_path / "source", torch.float32)
    report = latents(tmp_path / "source", tmp_path / "out", 8)
    assert {layer.latent_rank for layer in report.plan.layers} == {8}
    other = load_whole(tmp_path / "out")
    with torch.no_grad():
        output = generated(other, TOKENS, tokens=7)
        assert {layer.keys.shape[-1] for layer in cache_of(output).layers} == {8}
        moved = (model(TOKENS).logits - other(TOKENS).logits).abs().max()
    assert moved > 1e-3
    assert all(layer.key > 0 and layer.value > 0 for layer in report.layers)


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    build("gqa", tmp_path / "source", torch.float32)
    for name in ("one", "two"):
        latents(tmp_path / "source", tmp_path / name, 8, workers=2 if name == "two" else 1)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_bytes_a_token(tmp_path: Path) -> None:
    """Of two layers that keep 64 elements of 4 bytes each."""
    from headcount.convert.latent.size import BytesPerToken

    build("mha", tmp_path / "source", torch.float32)
    latents(tmp_path / "source", tmp_path / "out", BytesPerToken(128))
    spec = audit_model(str(tmp_path / "out")).spec
    assert spec.cache_bytes(tokens=1, bits=32) == 128
