"""The modelling file of our own: what a user does with a model that it loads."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    PreTrainedModel,
)
from transformers.cache_utils import EncoderDecoderCache

from conversions import load_whole, run, small_whisper
from headcount.convert.models import modeling_headcount
from headcount.convert.models.modeling_headcount import GroupedCache, Grouping
from mha_types import HEADS, KV, TOKENS, cached_heads, greedy, logits, settle, tie, tiny_model

pytestmark = pytest.mark.needs_convert

AUTO = {
    **dict.fromkeys(("gpt2", "fuyu"), AutoModelForCausalLM),
    **dict.fromkeys(("bart", "t5"), AutoModelForSeq2SeqLM),
}


@pytest.fixture(scope="module", params=["gpt2", "bart", "t5", "fuyu"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(model_type, a model whose heads agree in groups, its conversion)."""
    model_type: str = request.param
    folder = tmp_path_factory.mktemp(model_type)
    task = "causal" if AUTO[model_type] is AutoModelForCausalLM else "seq2seq"
    model = tiny_model(model_type, task, use_cache=True)
    tie(model)
    model.save_pretrained(folder / "mha")
    run(folder / "mha", folder / "gqa", KV)

    return model_type, folder / "mha", folder / "gqa"


def load(folders: Any, which: int, **options: Any) -> PreTrainedModel:
    model: PreTrainedModel = load_whole(folders[which], AUTO[folders[0]], **options)
    settle(model)
    return model


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_kernels(folders: Any, attention: str) -> None:
    options = {"attn_implementation": attention}
    reference, converted = load(folders, 1, **options), load(folders, 2, **options)
    assert converted.config._attn_implementation == attention
    assert (logits(converted) - logits(reference)).abs().max() <= 1e-10
    assert torch.equal(greedy(converted)[0], greedy(reference)[0])


def test_the_cache_is_the_users_and_small(folders: Any) -> None:
    """No view of it leaks: not into outputs, not into what a second call is given."""
    converted = load(folders, 2)
    cache = greedy(converted)[1]
    assert cached_heads(cache) == {KV}
    caches = [cache]
    if isinstance(cache, EncoderDecoderCache):
        caches += [cache.self_attention_cache, cache.cross_attention_cache]
    assert not any(type(found) is GroupedCache for found in caches)
    layers = [layer for found in caches[-2:] for layer in found.layers]
    assert not any(type(layer) is GroupedCache for layer in layers)


def test_beam_search(folders: Any) -> None:
    options = {"max_new_tokens": 6, "num_beams": 3, "do_sample": False}
    mask = torch.ones_like(TOKENS)
    outputs = [
        load(folders, which).generate(TOKENS, attention_mask=mask, **options) for which in (1, 2)
    ]
    assert torch.equal(outputs[0], outputs[1])


def test_sampling_with_a_padded_batch(folders: Any) -> None:
    mask = torch.ones_like(TOKENS)
    mask[0, :3] = 0
    tokens = TOKENS.masked_fill(mask == 0, 0)
    outputs = []
    for which in (1, 2):
        torch.manual_seed(0)
        model = load(folders, which)
        outputs.append(
            model.generate(tokens, attention_mask=mask, max_new_tokens=6, do_sample=True)
        )
    assert torch.equal(outputs[0], outputs[1])


def test_a_static_cache(folders: Any) -> None:
    converted = load(folders, 2)
    out: Any = converted.generate(
        TOKENS,
        attention_mask=torch.ones_like(TOKENS),
        max_new_tokens=6,
        do_sample=False,
        cache_implementation="static",
        disable_compile=True,
        return_dict_in_generate=True,
    )
    cache = out.get("cache", out.get("past_key_values"))
    assert cached_heads(cache) == {KV}
    assert torch.equal(out.sequences, greedy(converted)[0])


def test_it_can_be_saved_and_loaded_again(folders: Any, tmp_path: Path) -> None:
    converted, folder = load(folders, 2), tmp_path / "again"
    converted.save_pretrained(folder)
    assert (folder / "modeling_headcount.py").is_file()
    again = load_whole(folder, AUTO[folders[0]])
    assert type(again) is type(converted)
    assert torch.equal(logits(again), logits(converted))
    before, after = (json.loads((f / "config.json").read_text()) for f in (folders[2], folder))
    assert says(after, before)


def says(config: dict[str, Any], less: dict[str, Any]) -> bool:
    """Whether `config` has all that `less` has, in nested ones, too."""
    return all(
        says(config[key], value) if isinstance(value, dict) else config[key] == value
        for key, value in less.items()
    )


def test_training(folders: Any) -> None:
    """Every parameter gets a gradient, and a step changes the loss."""
    model = load(folders, 2).train()
    given = {"input_ids": TOKENS, "labels": TOKENS}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model(**given).loss
    before.backward()
    pooled = [m for _, m in model.named_modules() if getattr(m, "_forward_hooks", None)]
    weights = [m.weight for m in pooled if isinstance(getattr(m, "weight", None), nn.Parameter)]
    assert weights
    for weight in weights:
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0
    optimizer.step()
    assert model.eval()(**given).loss < before


def test_other_dtypes_and_meta(folders: Any) -> None:
    half = load(folders, 2, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    with torch.device("meta"):
        empty = AUTO[folders[0]].from_config(half.config)
    shapes = {name: p.shape for name, p in empty.named_parameters()}
    assert shapes == {name: p.shape for name, p in half.named_parameters()}


def test_from_a_config_alone(folders: Any) -> None:
    """A fresh model has initialised weights of the right size, and runs."""
    model = AUTO[folders[0]].from_config(AutoConfig.from_pretrained(folders[2])).eval()
    assert all(p.isfinite().all() for p in model.parameters())
    settle(model)
    assert cached_heads(greedy(model)[1]) == {KV}


REMOTE = """
import sys
sys.modules["headcount"] = None  # importing it fails from here on
import torch
from transformers import {auto}, {own}

for cls in ({auto}, {own}):
    try:
        cls.from_pretrained({folder!r})
    except Exception as error:
        print("refused:", str(error).replace(chr(10), " "))
model, info = {auto}.from_pretrained({folder!r}, trust_remote_code=True, output_loading_info=True)
assert not any(info.values()), info
print("loaded:", type(model).__module__)
tokens = torch.tensor({tokens})
options = dict(attention_mask=torch.ones_like(tokens), max_new_tokens=6, do_sample=False)
out = model.eval().generate(tokens, **options, eos_token_id=None, pad_token_id=0)
print("tokens:", out.tolist())
model.save_pretrained({again!r})
"""


def test_plain_transformers_loads_it_with_remote_code(folders: Any, tmp_path: Path) -> None:
    """And without it says what is missing, instead of loading something else."""
    if folders[0] != "bart":
        pytest.skip("what happens does not depend on the type, and an import of torch is slow")
    names = json.loads((folders[2] / "config.json").read_text())["architectures"]
    done = in_plain_python(
        REMOTE.format(
            auto=AUTO[folders[0]].__name__,
            own=names[0].removeprefix("Grouped"),
            folder=str(folders[2]),
            tokens=TOKENS.tolist(),
            again=str(tmp_path / "again"),
        ),
        tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = re.findall(r"(refused|loaded|tokens): (.*)", done.stdout)
    assert [word for word, _ in said] == ["refused", "refused", "loaded", "tokens"]
    untrusted, own_class, loaded, tokens = (text for _, text in said)
    assert "trust_remote_code=True" in untrusted
    assert "mismatched" in own_class
    assert loaded.startswith("transformers_modules.")
    assert tokens == str(greedy(load(folders, 1))[0].tolist())
    file = "modeling_headcount.py"
    assert (tmp_path / "again" / file).read_bytes() == (folders[2] / file).read_bytes()
    again = load_whole(tmp_path / "again", AUTO[folders[0]])
    assert torch.equal(logits(again), logits(load(folders, 2)))


def in_plain_python(text: str, cache: Path) -> "subprocess.CompletedProcess[str]":
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"HF_MODULES_CACHE": str(cache / "modules"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env=env,
        cwd=cache,
        stdin=subprocess.DEVNULL,
    )


def test_whisper(tmp_path: Path) -> None:
    """Its k has no bias, and its config class means the encoder's heads by num_key_value_heads."""
    torch.manual_seed(0)
    model = small_whisper(HEADS)
    tie(model)
    model.save_pretrained(tmp_path / "mha")
    run(tmp_path / "mha", tmp_path / "gqa", KV)
    reference = load_whole(tmp_path / "mha", AutoModelForSpeechSeq2Seq)
    converted = load_whole(tmp_path / "gqa", AutoModelForSpeechSeq2Seq)
    assert converted.config.num_key_value_heads == KV
    assert converted.config.encoder_attention_heads == 4
    sound = torch.randn(2, 8, 20, dtype=torch.float64)
    with torch.no_grad():
        one, two = (m(sound, decoder_input_ids=TOKENS) for m in (reference, converted))
    assert (one.logits - two.logits).abs().max() <= 1e-10
    assert cached_heads(two.get("cache", two.get("past_key_values"))) == {KV}
    out = [m.generate(sound, max_new_tokens=6, do_sample=False) for m in (reference, converted)]
    assert torch.equal(*out)


@pytest.mark.slow
def test_flex_attention() -> None:
    """Compiles a kernel, and has no backward on a CPU. A whole block of 128 tokens: with fewer the
    CPU kernel reads what nothing wrote, in transformers' own OPT too (5.24 with torch 2.13)."""
    grouping = {"heads": 4, "repeats": 1}
    config = modeling_headcount.GroupedOPTConfig(
        vocab_size=96,
        hidden_size=64,
        word_embed_proj_dim=64,
        ffn_dim=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=128,
        num_key_value_heads=2,
        grouped_projections={
            f"decoder.layers.*.self_attn.{part}_proj": {"parts": part, **grouping} for part in "kv"
        },
    )
    model = modeling_headcount.GroupedOPTForCausalLM(config).eval().requires_grad_(False)
    found = []
    for attention in ("eager", "flex_attention"):
        model.set_attn_implementation(attention)
        found.append(model(TOKENS.repeat(1, 16), use_cache=False).logits)
    assert (found[0] - found[1]).abs().max() <= 1e-5


def test_layers_may_differ(tmp_path: Path) -> None:
    model = tiny_model("bart", "seq2seq", decoder_layers=2)
    tie(model, 2)
    model.save_pretrained(tmp_path / "mha")
    report = run(tmp_path / "mha", tmp_path / "gqa", {0: 4, 1: 2})  # type: ignore[arg-type]
    assert report.plan.config["num_key_value_heads_per_layer"] == [4, 2]

    reference = load_whole(tmp_path / "mha", AutoModelForSeq2SeqLM)
    converted = load_whole(tmp_path / "gqa", AutoModelForSeq2SeqLM)
    for each in (reference, converted):
        settle(each)
    assert (logits(converted) - logits(reference)).abs().max() <= 1e-10
    cache = greedy(converted)[1]
    assert [layer.keys.shape[1] for layer in cache.self_attention_cache.layers] == [4, 2]
    assert [layer.keys.shape[1] for layer in cache.cross_attention_cache.layers] == [4, 2]


def test_it_can_be_converted_again(folders: Any, tmp_path: Path) -> None:
    """8 -> 2 -> 1 is 8 -> 1 in one step, up to the rounding between the steps."""
    run(folders[2], tmp_path / "twice", 1)
    run(folders[1], tmp_path / "once", 1)
    twice, once = (load_whole(tmp_path / n, AUTO[folders[0]]) for n in ("twice", "once"))
    assert (logits(twice) - logits(once)).abs().max() <= 1e-10
    if folders[0] != "gpt2":  # whose only K/V head is held by another class
        assert {**twice.config.to_dict(), "_name_or_path": ""} == {
            **once.config.to_dict(),
            "_name_or_path": "",
        }


@pytest.mark.parametrize(
    ("parts", "repeats"), [("k", 1), ("v", 1), ("kv", 1), ("qkv", 1), ("qkv", 8), ("qvk", 4)]
)
def test_expansion_is_what_the_class_stores(parts: str, repeats: int) -> None:
    """Against an index written out by hand: head h of k is K/V head h // group_size."""
    grouping = Grouping(parts=parts, heads=8, repeats=repeats, num_key_value_heads=2)
    d, order = 3, sorted(parts, key="qkv".index)
    starts, start = {}, 0
    for part in order:
        starts[part] = start
        start += (8 if part == "q" else 2) * d
    expected = []
    for repeat in range(repeats):
        for part in parts:
            for head in range(repeat * 8 // repeats, (repeat + 1) * 8 // repeats):
                stored = head if part == "q" else head // 4
                expected += [starts[part] + stored * d + i for i in range(d)]
    assert grouping.stored_rows(len(expected)) == start
    output = torch.arange(float(start)).expand(2, 5, start)
    assert torch.equal(grouping.expanded(output)[1, 4], torch.tensor(expected, dtype=torch.float))


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="8 heads can neither"):
        Grouping(parts="k", heads=HEADS, repeats=1, num_key_value_heads=3)


def test_a_model_without_such_projections_is_refused(folders: Any) -> None:
    config = AutoConfig.from_pretrained(folders[2])
    config.grouped_projections = {"layers.*.nothing": {}}
    with pytest.raises(ValueError, match=r"none of the projections.*layers\.\*\.nothing"):
        AUTO[folders[0]].from_config(config)


def test_only_names_of_transformers_classes_are_known() -> None:
    assert modeling_headcount.GroupedOPTForCausalLM.__name__ == "GroupedOPTForCausalLM"
    for name in ("GroupedNothing", "BartModel", "Groupedlogging"):
        with pytest.raises(AttributeError):
            getattr(modeling_headcount, name)
