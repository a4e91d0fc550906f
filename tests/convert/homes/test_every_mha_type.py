"""Every text generator of transformers whose class has one K/V head per query head is converted.

The whole mappings are swept: a type of transformers is either converted here, or its class can hold
fewer K/V heads by itself (other tests convert those), or it stands below with the reason why not.
"""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from conversions import load_whole, run
from every_type import MAPPINGS
from headcount.arch.read_config import Reading, read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.convert.homes import finding
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention
from mha_types import (
    ATTEMPTS,
    HEADS,
    KV,
    TOKENS,
    cached_heads,
    greedy,
    logits,
    settle,
    tie,
    tiny_config,
    tiny_model,
)
from random_configs import random_config
from tiny_truth import read, whole

pytestmark = pytest.mark.needs_convert

LIMIT = 1e-10
# Types whose class computes in float32 whatever the weights are: rounding, not a difference.
FLOAT32 = {"prophetnet": 1e-5, "xglm": 1e-5}
# Types that move to a class whose sines and cosines are rounded to float32 in another place.
ROTATED = {"codegen": 1e-6, "gptj": 1e-6}
AUTO = {"causal": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}
NOT_CONVERTED = {
    "blt": "its class reads num_key_value_heads, and cannot generate with a cache",
    "encoder-decoder": "a pair of models, each built from a type of its own",
    "openai-gpt": "keeps no K/V cache",
    "reformer": "keeps the inputs of its layers instead of K and V",
    "xlm": "runs over the whole text for every token: its cache is not read",
    "xlnet": "keeps hidden states instead of K and V",
}


@pytest.fixture(autouse=True)
def only_our_own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for types that another class could hold: test_rehome.py moves those."""
    monkeypatch.setattr(finding, "HOMES", {"custom": finding.HOMES["custom"]})


QUICK = (
    *(("causal", name) for name in ("gpt2", "bloom", "codegen", "bert", "big_bird")),
    *(("seq2seq", name) for name in ("t5", "marian", "led", "nllb-moe")),
)
ALL = tuple((task, name) for task in AUTO for name in MAPPINGS[task])


def convert_and_compare(model_type: str, task: str, folder: Path) -> str:
    """A line of the table. Asserts that the conversion computes the same function with a smaller
    cache."""
    exact = model_type not in FLOAT32
    model = tiny_model(model_type, task, dtype=torch.float64 if exact else torch.float32)
    assert cached_heads(greedy(model)[1]) == {HEADS}
    tie(model)
    model.save_pretrained(folder / "mha")
    report = run(folder / "mha", folder / "gqa", KV)

    source = type(model).from_pretrained(folder / "mha", attn_implementation="eager").eval()
    result = load_whole(folder / "gqa", AUTO[task], attn_implementation="eager")
    for each in (source, result):
        settle(each)
    error = (logits(result) - logits(source)).abs().max().item()
    sequences, cache = greedy(result)
    assert error <= {**FLOAT32, **ROTATED}.get(model_type, LIMIT)
    assert torch.equal(sequences, greedy(source)[0])
    assert cached_heads(cache) == {KV}
    assert all(layer.key == layer.value == 0 for layer in report.layers)
    home = report.plan.home.partition(":")[0]
    return f"{task:8} {model_type:24} {home:8} {error:.0e}"


@pytest.mark.parametrize(("task", "model_type"), QUICK)
def test_some_types(task: str, model_type: str, tmp_path: Path) -> None:
    assert convert_and_compare(model_type, task, tmp_path)


def is_mha_only(task: str, model_type: str) -> bool:
    """Whether the class caches one K/V head per query head though the config says fewer. The audit
    knows it: tests/audit/test_every_type.py holds it against what transformers builds."""
    layers = read_some(task, model_type).spec.layers
    mixers = [mixer for layer in layers if layer.stack == "decoder" for mixer in layer.mixers]
    cached = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    return bool(cached) and all(m.num_key_value_heads == m.num_attention_heads for m in cached)


def read_some(task: str, model_type: str) -> Reading:
    """A config that says fewer K/V heads, wherever its class may look for them."""
    fewer = {"num_key_value_heads": KV, "num_kv_heads": KV, "num_attention_heads": HEADS}
    text, error = ARCHITECTURES[model_type].config.text, None
    for seed in range(ATTEMPTS):
        config = {"sliding_window": 8, **tiny_config(model_type, task, seed, **fewer)}
        if text is not None:
            config[text] = {**(config.get(text) or {}), **fewer, "sliding_window": 8}
        try:
            return read_config({**config, "model_type": model_type}, model_type)
        except HeadcountError as failure:
            error = failure
    raise AssertionError(f"no config of {model_type} can be read: {error}")


@pytest.mark.slow
def test_every_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, failures = [], {}
    for task, model_type in ALL:
        if model_type in NOT_CONVERTED:
            continue
        try:
            if not is_mha_only(task, model_type):
                continue
            table.append(convert_and_compare(model_type, task, tmp_path / f"{task}-{model_type}"))
        except Exception as error:  # one type must not hide the others
            failures[task, model_type] = f"{type(error).__name__}: {error}"
    with capsys.disabled():
        print("", *table, sep="\n")
    assert failures == {}
    assert len(table) > 60


def test_reasons_are_of_types_that_exist() -> None:
    assert set(NOT_CONVERTED) <= {model_type for _, model_type in ALL}


def test_blt_cannot_generate_with_a_cache() -> None:
    """The reason why it is not converted: a release in which it can wants it converted."""
    model = whole(read(random_config("blt", 0, "causal")), "causal")
    for parameter in model.parameters():
        parameter.data.normal_(std=0.05)
    with pytest.raises(AttributeError, match="num_hidden_layers"):
        model.generate(input_ids=TOKENS, max_new_tokens=2, do_sample=False, pad_token_id=0)


def test_heads_that_differ_give_another_function(tmp_path: Path) -> None:
    """The comparison can fail: without tied heads the logits move."""
    model = tiny_model("bloom", "causal")
    model.save_pretrained(tmp_path / "mha")
    run(tmp_path / "mha", tmp_path / "gqa", KV)

    result = load_whole(tmp_path / "gqa", AutoModelForCausalLM)
    assert (logits(result) - logits(model)).abs().max() > 1e-3
