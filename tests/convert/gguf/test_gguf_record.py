"""Files as llama.cpp has loaded and run them, and as its own converter writes them.

The record (tools/record_gguf.py) has a digest of every tensor that llama.cpp was given: what is
written today has to have the same, so that what llama.cpp answered then holds of it.
"""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs_convert
pytest.importorskip("gguf")

from gguf_models import GGUF_MODELS, build  # noqa: E402
from gguf_record import converted, logits_of, read_file, recorded  # noqa: E402
from headcount.arch.gguf.written import WRITTEN  # noqa: E402

# Of all logits of a model, as far as llama.cpp may be from transformers: sums are made in another
# order. Where it computes gelu otherwise (see `approximations`), or by a table of float16, more.
NEAR, NEAR_BY_TABLE = 2e-4, 5e-3
BY_TABLE = ("gelu", "gelu_new", "gelu_pytorch_tanh")


def _tolerance(config: Any) -> float:
    names = ("hidden_act", "activation_function", "hidden_activation", "activation")
    found = {getattr(config, name, None) for name in names}
    gelus = config.model_type in ("bloom", "mpt") or not found.isdisjoint(BY_TABLE)
    return NEAR_BY_TABLE if gelus else NEAR


def test_every_architecture_is_in_the_record() -> None:
    known = {line["keys"]["general.architecture"] for line in recorded().values()}
    assert known == set(WRITTEN)
    assert recorded().keys() == GGUF_MODELS.keys()


@pytest.mark.parametrize("name", GGUF_MODELS)
def test_the_file_is_the_one_that_llama_cpp_ran(name: str, tmp_path: Path) -> None:
    model, line = build(name), recorded()[name]
    model.save_pretrained(tmp_path / "model")
    written = read_file(converted(tmp_path / "model", tmp_path / "file"))
    assert written.tensors == line["tensors"]
    assert written.keys == line["keys"]
    assert line["furthest"] <= _tolerance(model.config)
    last = logits_of(model)[-1][: len(line["last"])]
    assert last == pytest.approx(line["last"], abs=_tolerance(model.config), rel=0)


# What llama.cpp's converter writes otherwise, and why ours is right: llama.cpp's logits are those
# of transformers with ours.
OTHERWISE = {
    "llama, rope of llama3": ["rope_freqs.weight"],  # rounded in float32 on the way, ours once
    # It takes [q|k|v] for granted, where the class has q, k and v of each head together.
    "gpt_bigcode, MHA": [
        f"blk.{i}.attn_qkv.{leaf}" for i in range(2) for leaf in ("bias", "weight")
    ],
}


@pytest.mark.parametrize("name", GGUF_MODELS)
def test_llama_cpps_converter_writes_the_same_numbers(name: str) -> None:
    found = recorded()[name]["converter"]
    if "fails" in found:
        assert name in FAILS, found
        return
    assert found["tensors"] == OTHERWISE.get(name, [])


def test_the_page_has_the_figures() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gguf.md").read_text(encoding="utf-8")
    for name, line in recorded().items():
        architecture = line["keys"]["general.architecture"]
        largest = max(map(abs, line["last"]))
        row = f"| {name} | `{architecture}` | {line['furthest']:.2g} | {largest:.2g} |"
        assert row in page


# Its own faults: a key of configs that transformers 5 has moved, and norms of one head each.
FAILS = ("gpt_neox", "gpt_neox, sequential", "stablelm, q and k normed")
