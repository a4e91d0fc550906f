"""Where nothing rotates, attention reads the latents themselves: keys and values of the tokens that
came before are not made of them, and what comes out is the same."""

import inspect
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    CONFIG_MAPPING,
    AttentionInterface,
    AutoModelForCausalLM,
    DynamicCache,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from conversions import generated, load_whole
from headcount.convert.conversion import convert
from headcount.convert.models import headcount_factored, modeling_headcount_latent
from headcount.convert.models.headcount_factored import Factored
from headcount.convert.plan.request import ConversionRequest

pytestmark = pytest.mark.needs_convert

ANY = {"vocab_size": 96, "initializer_range": 0.3}
SMALL = {**ANY, "n_embd": 32, "n_head": 4, "n_layer": 2}
PLAIN = {**ANY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**PLAIN, "intermediate_size": 48, "num_key_value_heads": 2}
TOKENS_OF = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MPT = {**ANY, "d_model": 32, "n_heads": 4, "n_layers": 2}
# Types whose keys do not rotate: type, config.
ABSORBED: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", SMALL),
    "gpt2, upcast": ("gpt2", {**SMALL, "reorder_and_upcast_attn": True,
                     "scale_attn_by_inverse_layer_idx": True}),
    "opt": ("opt", {**PLAIN, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "bloom": ("bloom", {**ANY, "hidden_size": 32, "n_head": 4, "n_layer": 2}),
    "mpt": ("mpt", MPT),
    "gpt_neo": ("gpt_neo", {**ANY, "hidden_size": 32, "num_heads": 4, "num_layers": 2,
                "window_size": 5, "attention_types": [[["global", "local"], 1]]}),
    "biogpt": ("biogpt", {**PLAIN, "intermediate_size": 48}),
    "ctrl": ("ctrl", {**SMALL, "dff": 48}),
    "xglm": ("xglm", {**ANY, "d_model": 32, "attention_heads": 4, "num_layers": 2, "ffn_dim": 48,
             "init_std": 0.3}),
    "git": ("git", {**PLAIN, "intermediate_size": 48, "vision_config": {
            "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32,
            "patch_size": 16, "intermediate_size": 32}}),
    "falcon, alibi": ("falcon", {**PLAIN, "alibi": True, "multi_query": False,
                      "new_decoder_architecture": False}),
    "gpt_bigcode, mha": ("gpt_bigcode", {**SMALL, "multi_query": False}),
}  # fmt: skip
# Types whose heads are shared, or of which only some layers rotate: absorbed where it costs less.
IN_PART: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_bigcode, mqa": ("gpt_bigcode", SMALL),
    "smollm3": ("smollm3", {**LLAMA, **TOKENS_OF, "no_rope_layers": [0, 1]}),
    "cohere2": ("cohere2", {**LLAMA, **TOKENS_OF, "sliding_window": 5,
                "layer_types": ["sliding_attention", "full_attention"]}),
    "llama4": ("llama4_text", {**LLAMA, "head_dim": 8, "no_rope_layers": [0, 1],
               "num_local_experts": 2, "intermediate_size_mlp": 48, "attention_chunk_size": None}),
}  # fmt: skip
# Keys that rotate, are normed or clipped are rebuilt by the class's own code.
REBUILT: dict[str, tuple[str, dict[str, Any]]] = {
    "rotated": ("llama", LLAMA),
    "normed": ("qwen3", {**LLAMA, "head_dim": 8}),
    "clipped": ("mpt", {**MPT, "attn_config": {"clip_qkv": 0.5}}),
}
SOURCES = {**ABSORBED, **IN_PART, **REBUILT}
ROWS = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
RANKS = (Fraction(1), 6)
LIMIT = 1e-5  # of the largest logit, in float32


@pytest.fixture(scope="module", params=SOURCES)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A name, and the folder of its model and of two conversions."""
    folder = tmp_path_factory.mktemp("absorbed")
    make(request.param, folder)
    with torch.no_grad():
        yield request.param, folder


def make(name: str, folder: Path) -> None:
    model_type, config = SOURCES[name]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**config))
    for parameter in model.parameters():  # biases and norms, too
        parameter.data += torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder / "source")
    for number, size in enumerate(RANKS):
        convert(
            ConversionRequest(
                source=folder / "source",
                target=folder / f"latent{number}",
                num_key_value_heads=None,
                latent=size,
            ),
            progress=False,
        )


def loaded(made: tuple[str, Path], which: str, attention: str | None = None) -> Any:
    name, folder = made
    options: Any = {"experts_implementation": "eager"} if name == "llama4" else {}
    try:
        return load_whole(folder / which, attn_implementation=attention, **options)
    except ValueError:
        assert attention == "sdpa"
        pytest.skip("its class has none")


def difference(one: torch.Tensor, two: torch.Tensor) -> float:
    """Of the largest logit."""
    assert not two.isnan().any()
    return float((one - two).abs().max() / two.abs().max())


def in_pieces(model: Any, tokens: torch.Tensor, pieces: list[int]) -> torch.Tensor:
    """Logits of `tokens`, which the model gets in pieces."""
    cache = DynamicCache(config=model.config)
    key = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    found = [model(p, **{key: cache}, use_cache=True).logits for p in tokens.split(pieces, 1)]
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("number", range(len(RANKS)))
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_cache_gives_what_none_gives(
    made: tuple[str, Path], attention: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token by token, and in pieces; without the keys and values of what came before."""
    model = loaded(made, f"latent{number}", attention)
    expected = model(ROWS, use_cache=False).logits
    counts = counted(monkeypatch)
    for pieces in ([1] * 12, [6, 1, 1, 1, 3]):
        assert difference(in_pieces(model, ROWS, pieces), expected) <= LIMIT
    if made[0] in ABSORBED:
        assert counts == {"absorbed": 2 * (11 + 4)}
    elif made[0] in REBUILT:
        assert counts == {"rebuilt": 2 * (11 + 4)}
    elif attention == "sdpa":
        assert counts["absorbed"] > 0


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often attention reads latents, and how often keys and values are made of them: by
    their weights, or by the class."""
    counts: dict[str, int] = {}

    def count(owner: Any, method: str, name: str) -> None:
        inner = getattr(owner, method)

        def called(*args: Any, **kwargs: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return inner(*args, **kwargs)

        monkeypatch.setattr(owner, method, called)

    count(Factored, "_scores", "absorbed")
    count(headcount_factored, "_mask_of_rows", "absorbed")
    count(Factored, "whole", "made")
    count(modeling_headcount_latent._Rebuilding, "run", "rebuilt")
    return counts


GENERATED: dict[str, dict[str, Any]] = {
    "padded": {"pads": 3},
    "static": {"pads": 3, "cache_implementation": "static", "disable_compile": True},
    "beams": {"num_beams": 3},
}


@pytest.mark.parametrize("how", GENERATED)
def test_it_generates_what_its_source_does(made: tuple[str, Path], how: str) -> None:
    options = dict(GENERATED[how])
    mask = torch.ones_like(ROWS)
    mask[0, : options.pop("pads", 0)] = 0
    source = loaded(made, "source")
    if how == "static" and (not source._can_compile_fullgraph or "alibi" in made[0]):
        pytest.skip("its class takes no static cache")
    expected = generated(source, ROWS, tokens=6, attention_mask=mask, **options)
    found = generated(loaded(made, "latent0"), ROWS, tokens=6, attention_mask=mask, **options)
    assert torch.equal(found.sequences, expected.sequences)
    for one, two in zip(found.logits, expected.logits, strict=True):
        assert difference(one, two) <= LIMIT


ADAPTED = {
    "gpt2": ["c_attn.q", "c_attn.k", "c_attn.v"],
    "opt": ["q_proj", "k_proj", "v_proj", "out_proj"],
    "rotated": ["q_proj", "k_proj", "v_proj", "o_proj"],
}


@pytest.mark.parametrize("name", ADAPTED)
def test_adapters_read_latents(name: str, tmp_path: Path) -> None:
    """What they add to k and v is in the keys and values of every token: trained, merged, saved."""
    peft = pytest.importorskip("peft")
    make(name, tmp_path)
    model = loaded((name, tmp_path), "latent1", "sdpa")
    with torch.no_grad():
        plain = model(ROWS, use_cache=False).logits
        in_pieces(model, ROWS, [6, 1, 5])  # what it has seen of itself so far is no longer so
    config = peft.LoraConfig(target_modules=ADAPTED[name], r=2, init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).eval()
    with torch.enable_grad():
        adapted(input_ids=ROWS, labels=ROWS).loss.backward()
    slopes = [p.grad for p in adapted.parameters() if p.requires_grad]
    assert slopes and all(slope is not None and slope.abs().sum() > 0 for slope in slopes)
    with torch.no_grad():
        expected = adapted(input_ids=ROWS, use_cache=False).logits
        assert difference(plain, expected) > 1e-3
        assert difference(in_pieces(adapted, ROWS, [6, 1, 5]), expected) <= LIMIT
        with adapted.disable_adapter():
            assert difference(in_pieces(adapted, ROWS, [6, 1, 5]), plain) <= LIMIT
        merged = adapted.merge_and_unload()
        assert difference(in_pieces(merged, ROWS, [6, 1, 5]), expected) <= LIMIT
        merged.save_pretrained(tmp_path / "merged")
        again = load_whole(tmp_path / "merged")
        assert difference(again(ROWS).logits, expected) <= LIMIT


@pytest.mark.parametrize("attention", [pytest.param("eager", marks=pytest.mark.slow), "sdpa"])
def test_compiled_steps_read_latents_too(
    attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("opt", tmp_path)
    model = loaded(("opt", tmp_path), "latent1", attention)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        expected = model(ROWS, use_cache=False).logits
        model(ROWS[:, :6], past_key_values=cache)
        monkeypatch.setattr(Factored, "whole", _never)
        for place in range(6, 9):
            step = compiled(ROWS[:, place : place + 1], past_key_values=cache).logits
            assert difference(step[:, 0], expected[:, place]) <= LIMIT
    torch._dynamo.reset()


def _never(self: Any) -> None:
    raise AssertionError("keys or values are made")


def test_other_kernels_get_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention function that somebody has registered."""
    seen = []

    def kernel(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend([key, value])
        return sdpa_attention_forward(module, query, key, value, *args, **kwargs)

    make("gpt2", tmp_path)
    AttentionInterface.register("kernel of the test", kernel)
    AttentionMaskInterface.register("kernel of the test", sdpa_mask)
    model = loaded(("gpt2", tmp_path), "latent1", "sdpa")
    with torch.no_grad():
        expected = model(ROWS, use_cache=False).logits
        monkeypatch.setattr(model.config, "_attn_implementation", "kernel of the test")
        found = in_pieces(model, ROWS, [6, 1, 5])
    assert seen and all(isinstance(one, torch.Tensor) for one in seen)
    assert difference(found, expected) <= LIMIT


def test_nothing_of_a_call_outlives_it(tmp_path: Path) -> None:
    """Keys and values of a call without a cache are gone with it, as with the class."""
    make("gpt2", tmp_path)
    model = loaded(("gpt2", tmp_path), "latent1")
    model(ROWS, use_cache=False)
    kept = [m.latents for m in model.modules() if hasattr(m, "latents")]
    assert kept
    assert all(one.new is None and not one.given for one in kept)
