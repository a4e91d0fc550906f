"""Every type of transformers that converts: its pruned model computes what the source does with the
columns of o zeroed that those heads are multiplied by, or it says why it cannot be pruned.

`pytest -m "" -s tests/convert/pruning/test_every_type.py` prints the table. Where a head's output
lies is read off the map here; test_pruned_is_masked.py types it for some families.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversion_limits import REFUSED, UNCOMPARED
from every_type import whole_jobs
from grouped_models import (
    NOT_ON_TEXT,
    NoGroupsError,
    NotBuildableError,
    Pair,
    build_pair,
    load,
    logits,
    precision,
)
from headcount.convert.conversion import convert
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.plan.request import ConversionRequest, HeadsOfLayers
from headcount.convert.plan.source import ConversionSource, read_source
from headcount.convert.stream.head_layout import join_heads, split_heads
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert

JOBS = list(whole_jobs())
# One type of each layout: fused, gated, with sinks, in its class or another's.
SAMPLE = ("phi3", "qwen3_next", "gpt_oss", "starcoder2")
# Their routers or norms are made in float32 whatever the weights are.
CLOSE = 1e-5
NOT_COMPARED = ("diffusion_gemma", "shieldgemma2", *NOT_ON_TEXT)


def pruned_of(source: ConversionSource) -> HeadsOfLayers:
    """One query head of each K/V head, or single heads where these have one each."""
    found = {}
    for (index, _), mixer in source.attention_map.mixers.items():
        size = mixer.group_size
        heads = range(0, mixer.num_attention_heads, size) if size > 1 else (1, 2)
        found[index] = tuple(heads)
    return found


def mask(source: ConversionSource, pruned: HeadsOfLayers, folder: Path) -> Path:
    """A copy of the source with those columns of o zeroed."""
    shutil.copytree(source.folder, folder)
    tensors = load_file(folder / "model.safetensors")
    for (index, _), one in source.attention_map.attentions.items():
        for held in one.projections:
            if "o" in held.parts:
                name = held.tensor.name
                heads = split_heads(tensors[name], held.blocks)
                heads["o"] = heads["o"].index_fill(0, torch.tensor(pruned[index]), 0.0)
                tensors[name] = join_heads(heads, held.blocks)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def check(model_type: str, task: str, folder: Path) -> str:
    try:
        pair = build_pair(model_type, task, folder / "models")
    except (NoGroupsError, NotBuildableError) as error:
        return f"not built: {str(error)[:60]}"
    try:
        source = read_source(pair.grouped)
        pruned = pruned_of(source)
        request = ConversionRequest(
            source=pair.grouped,
            target=folder / "out",
            num_key_value_heads=None,
            pruned_heads=pruned or {0: (0,)},
        )
        done = convert(request, progress=False)
    except (CannotConvertError, HeadcountError) as error:
        return f"refused: {str(error).rpartition(': ')[2][:100]}"
    kind = done.plan.home.partition(":")[0]
    if model_type in NOT_COMPARED:
        return f"{kind}, not compared"
    return f"{kind}, logits differ by {compare(pair, done.target, source, pruned, folder):.1e}"


def compare(
    pair: Pair, target: Path, source: ConversionSource, pruned: HeadsOfLayers, folder: Path
) -> float:
    dtype = precision(pair.config["model_type"])
    wanted = logits(load(pair, mask(source, pruned, folder / "masked")), dtype)
    whole = logits(load(pair, pair.grouped), dtype)
    found = logits(_load(pair, target), dtype)
    assert (whole - wanted).abs().max() > 1e-3  # the heads did something
    difference = float((found - wanted).abs().max())
    assert difference <= CLOSE, difference
    return difference


def _load(pair: Pair, folder: Path) -> torch.nn.Module:
    config = json.loads((folder / "config.json").read_text())
    if not config["model_type"].startswith("headcount_"):
        return load(pair, folder)
    from headcount.convert.models import modeling_headcount

    own = getattr(modeling_headcount, config["architectures"][0])
    model, info = own.from_pretrained(
        folder,
        dtype=precision(pair.config["model_type"]),
        attn_implementation="eager",
        output_loading_info=True,
    )
    assert not any(info.values()), info
    return model.eval()


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    print("\n" + "\n".join(sorted(lines)))


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_type_of_each_kind_is_masked_or_says_why_not(model_type: str, tmp_path: Path) -> None:
    task = next(task for known, task in JOBS if known == model_type)
    assert check(model_type, task, tmp_path).startswith("native, logits differ by")


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_every_type_is_masked_or_says_why_not(
    model_type: str, task: str, tmp_path: Path, table: list[str]
) -> None:
    if model_type in REFUSED or model_type in UNCOMPARED:
        pytest.skip("converts to nothing, or was never compared")
    table.append(f"{model_type:30} {task:12} {check(model_type, task, tmp_path)}")
