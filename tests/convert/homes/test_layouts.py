"""Layouts beyond separate q, k and v: fused, padded, layer by layer; and heads that are copies."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversion_limits import WIDTH_CHECKED
from conversions import run
from grouped_models import HEADS, TOKENS, Pair, build_pair, config_of, load
from headcount.arch.registry import ARCHITECTURES
from headcount.arch.tensors.names import MLA_NAMES
from headcount.convert.conversion_report import conversion_report
from headcount.convert.plan.errors import CannotConvertError, HeadCountError
from headcount.convert.plan.heads import Heads, HeadsByLayer
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.refusals.counts import uniform
from headcount.convert.plan.request import ConversionRequest, parse_key_value_heads
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
# One type of each layout: blocks, groups, heads in turn, rows per norm, lists, gates, cross layers.
LAYOUTS = (
    *("phi3", "dbrx", "falcon", "gpt_bigcode", "sarvam_moe", "cohere", "stablelm", "qwen3_next"),
    *("gemma4_text", "nemotron_h", "mimo_v2_flash", "exaone", "moshi", "inkling_text", "laguna"),
)


def heads(count: int, before: int, after: int) -> Heads:
    return Heads(num_attention_heads=count, before=before, after=after, head_dim=8)


def logits(pair: Pair, folder: Path) -> torch.Tensor:
    model = load(pair, folder)
    with torch.no_grad():
        return torch.as_tensor(model(TOKENS).logits)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("model_type", LAYOUTS)
def test_every_layout_comes_back_byte_for_byte(model_type: str, dtype: str, tmp_path: Path) -> None:
    pair = build_pair(model_type, "causal", tmp_path / "models", dtype=dtype)
    back = run(pair.repeated, tmp_path / "back", pair.kv).target
    assert (back / "model.safetensors").read_bytes() == (
        pair.grouped / "model.safetensors"
    ).read_bytes()


def test_runs_and_places_of_uneven_heads() -> None:
    """12 query heads of 6 K/V heads become 4 K/V heads: runs of 2, 2, 1, 1 and 16 places."""
    own = heads(12, 6, 4)
    assert own.runs == (2, 2, 1, 1)
    assert own.padded_heads == 16
    assert own.query_slots == (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, None, None, 10, 11, None, None)
    even = heads(12, 6, 3)
    assert (even.runs, even.padded_heads, even.is_padded) == ((2, 2, 2), 12, False)
    assert even.query_slots == tuple(range(12))


def test_layers_beyond_the_config_are_as_the_last_one() -> None:
    model = HeadsByLayer(layers={(0, False): heads(8, 8, 4), (3, False): heads(8, 4, 2)})
    assert model.of(7) == heads(8, 4, 2)
    assert model.of(1) is None
    with pytest.raises(CannotConvertError, match="differ in heads"):
        uniform(model)


# Classes of every kind of neighbour that padding has to follow: biases, norms, sinks, gates.
@pytest.mark.parametrize(
    "model_type",
    [
        *("llama", "qwen2", "qwen3", "gemma3_text", "cohere", "phi3", "gpt_oss", "afmoe", "glm"),
        *("nemotron", "qwen3_next", "mixtral", "starcoder2", "granitemoehybrid"),
    ],
)
def test_a_number_that_divides_nothing_pads_query_heads(model_type: str, tmp_path: Path) -> None:
    """Against a model whose K/V heads are tied by hand in the same uneven runs."""
    pair = build_pair(model_type, "causal", tmp_path / "models", hidden_size=96)
    report = run(pair.repeated, tmp_path / "out", 3)
    layer = report.plan.layers[0]
    count = 12 if model_type in WIDTH_CHECKED else 9  # 96 is no multiple of 9
    assert (layer.before, layer.after, layer.padded_heads) == (HEADS, 3, count)
    tie(pair.repeated, tmp_path / "tied", runs=(3, 3, 2))
    out, tied_by_hand = (logits(pair, tmp_path / name) for name in ("out", "tied"))
    torch.testing.assert_close(out, tied_by_hand, rtol=0, atol=1e-10)
    assert any(f"query heads grow from 8 to {count}" in note for note in report.plan.notes)


def tie(source: Path, target: Path, runs: tuple[int, ...]) -> None:
    """Writes a copy in which the K/V heads of each run are their mean, from the shapes alone."""
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if ".vision" in name:
            continue
        if "qkv_proj" in name:
            third = tensor.shape[0] // 3
            parts = [tensor[:third], *(tied(p, runs) for p in tensor[third:].split(third))]
            tensors[name] = torch.cat(parts)
        elif any(word in name for word in ("k_proj", "v_proj")) or (
            "k_norm" in name and tensor.dim() == 2
        ):
            tensors[name] = tied(tensor, runs)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def tied(tensor: torch.Tensor, runs: tuple[int, ...]) -> torch.Tensor:
    by_head = tensor.unflatten(0, (HEADS, -1))
    means = [
        run.double().mean(0, keepdim=True).to(tensor.dtype).expand(len(run), *run.shape[1:])
        for run in by_head.split(list(runs))
    ]
    return torch.cat(means).flatten(0, 1).contiguous()


@pytest.mark.parametrize("model_type", ["olmo2", "bitnet", "diffllama", "laguna", "gpt_bigcode"])
def test_what_padding_would_change_is_refused(model_type: str, tmp_path: Path) -> None:
    """Norms over all heads, heads that are subtracted in pairs, numbers of heads in a list."""
    source = build_pair(model_type, "causal", tmp_path / "models").repeated
    with pytest.raises(HeadcountError, match=r"choose|cannot be pooled|ignores"):
        plan_conversion(
            ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=3)
        )


def test_single_layers_where_the_config_can_say_them(tmp_path: Path) -> None:
    """Gemma 4: one number for all full layers, another for all that slide."""
    pair = build_pair("gemma4_text", "causal", tmp_path / "models")
    config = config_of(pair.repeated)
    kinds = config["layer_types"][: config["num_hidden_layers"] - config["num_kv_shared_layers"]]
    wanted = {i: 2 if kind == "full_attention" else 4 for i, kind in enumerate(kinds)}
    report = run(pair.repeated, tmp_path / "out", wanted)
    counts = {layer.index: layer.after for layer in report.plan.layers}
    assert counts.items() <= wanted.items()
    assert set(counts.values()) == {2, 4}
    load(pair, tmp_path / "out")
    with pytest.raises(CannotConvertError, match="one number for all"):
        run(pair.repeated, tmp_path / "none", {next(iter(wanted)): 4})


def test_padding_that_a_class_refuses_lists_the_divisors(tmp_path: Path) -> None:
    """Llama wants a hidden_size that is a multiple of the heads, and 64 has no multiple of 3."""
    source = build_pair("llama", "causal", tmp_path / "models", hidden_size=64).repeated
    with pytest.raises(HeadCountError, match="--kv-heads can be 1, 2, 4"):
        plan_conversion(
            ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=3)
        )


def test_types_that_check_their_width() -> None:
    """Those of transformers that do, of all whose head_dim is free."""
    from transformers import CONFIG_MAPPING

    refused = set()
    for model_type, row in ARCHITECTURES.items():
        free = not row.attention.fixed_head_dim and row.config.text is None
        if model_type in CONFIG_MAPPING and free:
            try:
                CONFIG_MAPPING[model_type](
                    hidden_size=64, num_attention_heads=9, num_key_value_heads=3, head_dim=8
                )
            except Exception as error:
                refused |= {model_type} if "multiple of the number of" in str(error) else set()
    kept = {n for n in refused if ARCHITECTURES[n].attention.cached is not False}
    cached = {n for n in kept if ARCHITECTURES[n].names != MLA_NAMES}
    native = cached - {"esmc", "ultrabert", "hrm_text"}  # encoders, and one that has no GQA
    assert native <= WIDTH_CHECKED


def test_copies_are_noticed_and_reported(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = repeated(grouped("llama", 12, 4), 3)
    exact = run(source, tmp_path / "exact", 4)
    record = json.loads((tmp_path / "exact" / "conversion.json").read_text())
    assert record["lossless"] is True
    assert {layer["distinct_key_value_heads"] for layer in record["layers"]} == {4}
    assert any("computes what the source does" in n for n in conversion_report(exact).notes)
    lossy = run(source, tmp_path / "lossy", 2)
    assert not any(layer.lossless for layer in lossy.layers)
    assert any("--kv-heads 4 merges only heads" in n for n in conversion_report(lossy).notes)


def test_heads_that_nearly_agree_are_no_copies(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    """One number that differs by less than a distance in float32 can say."""
    import shutil

    source = Path(shutil.copytree(repeated(grouped("llama", 12, 4), 3), tmp_path / "source"))
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.1.self_attn.v_proj.bias"][8] += 1e-6
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    layers = run(source, tmp_path / "out", 4).layers
    assert [layer.lossless for layer in layers] == [True, False]
    assert [layer.distinct for layer in layers] == [4, 12]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("8", 8), ("0-2:8,3:4", {0: 8, 1: 8, 2: 8, 3: 4}), (" 1:2 , 5-6:1", {1: 2, 5: 1, 6: 1})],
)
def test_numbers_are_read(text: str, wanted: object) -> None:
    assert parse_key_value_heads(text) == wanted


@pytest.mark.parametrize("text", ["", "x", "8:", "3-1:2", "0-3:2,2:1", "0-:3", "-1", "1:2;2:3"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(HeadcountError):
        parse_key_value_heads(text)


def test_counts_that_do_not_fit_name_those_that_do(tmp_path: Path) -> None:
    source = build_pair("falcon", "causal", tmp_path / "models").repeated
    with pytest.raises(HeadCountError, match="--kv-heads can be 1, 2, 4"):
        plan_conversion(
            ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=3)
        )


def test_other_spellings_of_the_count_follow(tmp_path: Path) -> None:
    """MiMo-V2-Flash as published has the number of its sliding layers, too, for other engines."""
    source = build_pair("mimo_v2_flash", "causal", tmp_path / "models").repeated
    path = source / "config.json"
    config = {**json.loads(path.read_text()), "swa_num_key_value_heads": HEADS}
    path.write_text(json.dumps(config))
    report = run(source, tmp_path / "out", 1)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["num_key_value_heads"], written["swa_num_key_value_heads"]) == (1, 2)
    assert {(layer.before, layer.after) for layer in report.plan.layers} == {(4, 1), (8, 2)}


@pytest.mark.parametrize("method", ["first", "medoid", "random"])
def test_methods_choose_for_each_attention(method: str, tmp_path: Path) -> None:
    """T5Gemma's decoder layers have K/V heads twice: over themselves and over the encoder."""
    pair = build_pair("t5gemma", "seq2seq", tmp_path / "models")
    back = run(pair.repeated, tmp_path / "back", pair.kv, method=method).target
    name = "model.safetensors"
    assert (back / name).read_bytes() == (pair.grouped / name).read_bytes()


def test_unused_heads_of_layers_that_share_follow_their_owner(tmp_path: Path) -> None:
    """Gemma's files hold k and v of layers that read another's cache; engines may load them."""
    pair = build_pair("gemma4_text", "causal", tmp_path / "models")
    config = config_of(pair.repeated)
    reader = config["num_hidden_layers"] - 1
    assert config["num_kv_shared_layers"] > 0
    kinds = config["layer_types"]
    owner = max(
        i
        for i in range(config["num_hidden_layers"] - config["num_kv_shared_layers"])
        if kinds[i] == kinds[reader]
    )
    file = pair.repeated / "model.safetensors"
    tensors = load_file(file)
    start, new = f"model.layers.{owner}.self_attn.", f"model.layers.{reader}.self_attn."
    unused = {
        new + name.removeprefix(start): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(start) and name.removeprefix(start)[0] in "kv"
    }
    save_file({**tensors, **unused}, file, metadata={"format": "pt"})
    run(pair.repeated, tmp_path / "out", pair.kv)
    after = load_file(tmp_path / "out" / "model.safetensors")
    for name in unused:
        assert torch.equal(after[name], after[name.replace(new, start)]), name
