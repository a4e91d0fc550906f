"""Re-homes: where K/V heads agree inside groups, another class computes the same function."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from conversions import load_whole, run
from headcount.convert.plan.errors import CannotConvertError, HeadCountError
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert

BuildModel = Callable[..., Any]
HEADS, D, HIDDEN = 12, 8, 96
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9]])
PLAIN = {"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": 2}
GPTJ = {**PLAIN, "rotary_dim": 4}
FALCON_RW = {
    **PLAIN,
    **{"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    **{"new_decoder_architecture": False},
}


Views = list[list[torch.Tensor]]


def per_head(tensor: torch.Tensor) -> Views:
    """The k heads and the v heads of a fused [head, (q, k, v), d], as views."""
    heads = tensor.unflatten(0, (HEADS, 3, D))
    return [[heads[h, part] for h in range(HEADS)] for part in (1, 2)]


def four_blocks(tensor: torch.Tensor) -> Views:
    """CodeGen: four times [q | v | k], each of three heads."""
    blocks = tensor.unflatten(0, (4, 3, 3, D))
    return [[blocks[h // 3, part, h % 3] for h in range(HEADS)] for part in (1, 2)]


def own(tensor: torch.Tensor) -> Views:
    return [list(tensor.unflatten(0, (HEADS, D)))]


# type of the source -> variants: its config, the modules with k and v, how their heads lie, the
# class it moves to, the counts of K/V heads, the largest difference of logits.
CASES: dict[str, tuple[dict[str, Any], str, Any, str, tuple[int, ...], float]] = {
    "gpt_neox": (PLAIN, "query_key_value", per_head, "Phi", (4, 6, 1), 1e-10),
    "gpt_neox-rotary": (
        {**PLAIN, "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5}},
        *("query_key_value", per_head, "Phi", (4,), 1e-10),
    ),
    "gpt_neox-no_bias": (
        {**PLAIN, "attention_bias": False, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
        *("query_key_value", per_head, "Phi", (2,), 1e-10),
    ),
    "gpt_neox-tied": (
        {**PLAIN, "tie_word_embeddings": True},
        *("query_key_value", per_head, "Phi", (4,), 1e-10),
    ),
    "gpt_neox-sequential": (
        {
            **PLAIN,
            "use_parallel_residual": False,
            "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 1.0},
        },
        *("query_key_value", per_head, "Starcoder2", (4, 1), 1e-10),
    ),
    "gpt_neox-sequential-no_bias": (
        {
            **{**PLAIN, "use_parallel_residual": False, "attention_bias": False},
            "rope_parameters": {"partial_rotary_factor": 1.0},
        },
        *("query_key_value", per_head, "Starcoder2", (6,), 1e-10),
    ),
    # Their sine tables are float32.
    "gptj": (GPTJ, r"[kv]_proj", own, "Phi", (4, 6, 1), 1e-5),
    "gptj-other_sizes": (
        {**GPTJ, "rotary_dim": 6, "n_inner": 80},
        *(r"[kv]_proj", own, "Phi", (4,), 1e-5),
    ),
    "codegen": (GPTJ, "qkv_proj", four_blocks, "Phi", (4, 6, 1), 1e-5),
    "opt": ({**PLAIN, "ffn_dim": 80}, r"[kv]_proj", own, "GPTBigCode", (1,), 1e-10),
    "opt-no_bias": (
        {**PLAIN, "enable_bias": False, "layer_norm_elementwise_affine": False, "ffn_dim": 80},
        *(r"[kv]_proj", own, "GPTBigCode", (1,), 1e-10),
    ),
    "falcon": (FALCON_RW, "query_key_value", per_head, "Falcon", (1,), 1e-10),
    "falcon-rotary": (
        {**FALCON_RW, "alibi": False, "bias": False, "parallel_attn": True},
        *("query_key_value", per_head, "Falcon", (1,), 1e-10),
    ),
}
EVERY = [(case, kv) for case, row in CASES.items() for kv in row[4]]


def tied_source(build_model: BuildModel, folder: Path, case: str, kv: int) -> Any:
    """A saved float64 model whose K and V heads are equal inside `kv` groups."""
    config, modules, split, _, _, _ = CASES[case]
    model = build_model(case.partition("-")[0], **config).double()
    for name, parameter in model.named_parameters():
        if re.search(rf"\.{modules}\.(weight|bias)$", name):
            for heads in split(parameter.data):
                for number, head in enumerate(heads):
                    head.copy_(heads[number - number % (HEADS // kv)])
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("case", "kv"), EVERY)
def test_the_function_stays(build_model: BuildModel, tmp_path: Path, case: str, kv: int) -> None:
    model = tied_source(build_model, tmp_path / "source", case, kv)
    report = run(tmp_path / "source", tmp_path / "out", kv)
    converted = load_whole(tmp_path / "out")
    assert type(converted).__name__ == f"{CASES[case][3]}ForCausalLM"
    assert converted.dtype == torch.float64
    with torch.no_grad():
        ours, theirs = converted(TOKENS).logits, model(TOKENS).logits
    assert theirs.abs().max() > 1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=CASES[case][5])
    options = {"max_new_tokens": 12, "do_sample": False}
    assert torch.equal(converted.generate(TOKENS, **options), model.generate(TOKENS, **options))
    cache = converted(TOKENS, use_cache=True).past_key_values
    assert {layer.keys.shape[1] for layer in cache.layers} == {kv}
    assert all(layer.key == layer.value == 0 for layer in report.layers)


def test_shards_may_part_what_belongs_together(build_model: BuildModel, tmp_path: Path) -> None:
    """q, k and v of a layer become one tensor, and they need not lie in one file."""
    model = tied_source(build_model, tmp_path / "source", "opt", 1)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="40KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 4
    run(tmp_path / "source", tmp_path / "whole", 1)
    run(tmp_path / "sharded", tmp_path / "parts", 1)
    ours = load_whole(tmp_path / "parts").state_dict()
    for name, tensor in load_whole(tmp_path / "whole").state_dict().items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("case", ["gpt_neox", "gptj", "opt", "falcon"])
def test_a_model_without_a_head(build_model: BuildModel, tmp_path: Path, case: str) -> None:
    """Saved as its base model, whose names have no prefix."""
    model = tied_source(build_model, tmp_path / "whole", case, 1).base_model
    model.save_pretrained(tmp_path / "source")
    run(tmp_path / "source", tmp_path / "out", 1)
    converted = load_whole(tmp_path / "out", AutoModel)
    with torch.no_grad():
        ours, theirs = converted(TOKENS)[0], model(TOKENS)[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=CASES[case][5])


def test_keys_of_older_files_are_read(build_model: BuildModel, tmp_path: Path) -> None:
    model = tied_source(build_model, tmp_path / "source", "gpt_neox-rotary", 4)
    path = tmp_path / "source" / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps({**config, "rotary_pct": 0.5, "rotary_emb_base": 500}))
    run(tmp_path / "source", tmp_path / "out", 4)
    with torch.no_grad():
        ours = load_whole(tmp_path / "out")(TOKENS).logits
        torch.testing.assert_close(ours, model(TOKENS).logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("case", ["gpt_neox", "codegen", "falcon"])
def test_narrow_dtypes_stay_close(
    build_model: BuildModel, tmp_path: Path, case: str, dtype: str
) -> None:
    """A fold rounds once; the rest is moved bit for bit."""
    model = tied_source(build_model, tmp_path / "double", case, 1)
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "source")
    run(tmp_path / "source", tmp_path / "out", 1)
    converted = load_whole(tmp_path / "out")
    assert converted.dtype == getattr(torch, dtype)
    with torch.no_grad():
        ours, theirs = converted.double()(TOKENS).logits, model.double()(TOKENS).logits
    precision = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6}[dtype]
    assert (ours - theirs).norm() <= 3 * precision * theirs.norm()


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("gpt_neox", {**PLAIN, "use_parallel_residual": False}, 4, "rotates a part of each head"),
    ("opt", {**PLAIN, "do_layer_norm_before": False}, 1, "norms stand behind"),
    ("opt", {**PLAIN, "word_embed_proj_dim": 16}, 1, "word_embed_proj_dim"),
]


@pytest.mark.parametrize(("model_type", "config", "kv", "words"), REFUSED)
def test_what_no_class_computes_is_refused(
    build_model: BuildModel,
    tmp_path: Path,
    model_type: str,
    config: dict[str, Any],
    kv: int,
    words: str,
) -> None:
    build_model(model_type, **config).save_pretrained(tmp_path / "source")
    with pytest.raises(CannotConvertError, match=words):
        run(tmp_path / "source", tmp_path / "out", kv, home="rehome")
    assert run(tmp_path / "source", tmp_path / "out", kv).plan.home.startswith("custom")


@pytest.mark.parametrize("model_type", ["opt", "falcon"])
def test_other_counts_are_refused(build_model: BuildModel, tmp_path: Path, model_type: str) -> None:
    build_model(model_type, **CASES[model_type][0]).save_pretrained(tmp_path / "source")
    with pytest.raises(HeadCountError, match="--kv-heads 1 is possible"):
        run(tmp_path / "source", tmp_path / "out", 4, home="rehome")


@pytest.mark.parametrize(
    "gone", ["attention.dense.weight", "input_layernorm.weight", "mlp.dense_4h_to_h.weight"]
)
def test_an_incomplete_layer_is_refused(build_model: BuildModel, tmp_path: Path, gone: str) -> None:
    build_model("gpt_neox", **PLAIN).save_pretrained(tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    tensors = load_file(file)
    del tensors[f"gpt_neox.layers.1.{gone}"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(HeadcountError, match=r"layers?[ .]1"):
        run(tmp_path / "source", tmp_path / "out", 4)


def test_a_stranger_is_refused(build_model: BuildModel, tmp_path: Path) -> None:
    build_model("gptj", **GPTJ).save_pretrained(tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    extra = {"transformer.h.1.attn.gate.weight": torch.ones(2, 2)}
    save_file({**load_file(file), **extra}, file, metadata={"format": "pt"})
    with pytest.raises(HeadcountError, match=r"h\.1\.attn\.gate"):
        run(tmp_path / "source", tmp_path / "out", 4)


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("gpt_neox.layers.9.attention.query_key_value.weight", torch.ones(96, 32), "a layer that"),
        ("gpt_neox.layers.9.attention.query_key_value.weight", torch.ones(96), "a layer that"),
        ("gpt_neox.layers.1.mlp.dense_h_to_4h.weight", torch.tensor(1.0), r"has shape \[\]"),
        ("embed_out.weight", torch.tensor(1.0), r"has shape \[\]; 1 rows or more"),
    ],
)
def test_a_shape_or_layer_that_the_class_has_not_is_refused(
    build_model: BuildModel, tmp_path: Path, name: str, tensor: torch.Tensor, words: str
) -> None:
    build_model("gpt_neox", **PLAIN).save_pretrained(tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    save_file({**load_file(file), name: tensor}, file, metadata={"format": "pt"})
    with pytest.raises(CannotConvertError, match=words):
        run(tmp_path / "source", tmp_path / "out", 4, home="rehome")
