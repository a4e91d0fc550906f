"""A model whose heads were pruned computes what the source does with their outputs zeroed."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from conversions import load_whole
from headcount.convert.check import check_conversion
from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.request import ConversionRequest, PrunedHeads
from pruned_models import FAMILIES, TOKENS, Family, masked

pytestmark = pytest.mark.needs_convert
CLOSE = 1e-5

Pruned = dict[int, tuple[int, ...]]


def prune(source: Path, target: Path, pruned: PrunedHeads, **options: object) -> ConversionReport:
    request = ConversionRequest(
        source=source, target=target, num_key_value_heads=None, pruned_heads=pruned, **options
    )
    return convert(request, progress=False)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(TOKENS).logits)


def choices(family: Family) -> list[Pruned]:
    """Single heads where each has its own K/V head; else whole groups, and one head of each. Then
    layers that do not lose the same."""
    size, groups = family.heads // family.key_value_heads, family.key_value_heads
    if size == 1:
        return [{0: (1, 4), 1: (0, 5)}, {0: (3,), 1: (0, 1, 4)}]
    whole = tuple(range(size))
    last = tuple(range((groups - 1) * size, groups * size))
    one_each = tuple(j * size for j in range(groups))
    other_each = tuple(j * size + (j + 1) % size for j in range(groups))
    equal: list[Pruned] = [{0: whole, 1: last}, {0: one_each, 1: other_each}]
    return [*equal, {0: whole, 1: one_each}]


def held_by_its_class(family: Family, pruned: Pruned) -> bool:
    """Where its config has numbers of its own, if all layers lose as many."""
    size = family.heads // family.key_value_heads
    left = [{h // size for h in range(family.heads) if h not in gone} for gone in pruned.values()]
    same = len({(len(gone), len(kv)) for gone, kv in zip(pruned.values(), left, strict=True)}) == 1
    return family.native and same


CASES = [
    pytest.param(family, pruned, id=f"{family.name}-{number}")
    for family in FAMILIES
    for number, pruned in enumerate(choices(family))
]


@pytest.mark.parametrize(("family", "pruned"), CASES)
def test_pruned_heads_are_heads_whose_output_is_zero(
    family: Family, pruned: Pruned, tmp_path: Path
) -> None:
    source = family.build(tmp_path / "source")
    done = prune(source, tmp_path / "target", pruned)
    assert done.plan.home.startswith("native" if held_by_its_class(family, pruned) else "custom")
    model = load_whole(source)
    with masked(model, family, pruned):
        wanted = logits(model)
    assert (wanted - logits(model)).abs().max() > 100 * CLOSE  # the heads did something
    found = logits(load_whole(tmp_path / "target"))
    assert (found - wanted).abs().max() <= CLOSE
    checked = check_conversion(source, tmp_path / "target", lossless=True, pruned=pruned)
    assert checked.problems == ()
    assert checked.masked_heads == sum(map(len, pruned.values()))
    other = {1: pruned[1]}
    (problem,) = check_conversion(source, tmp_path / "target", lossless=True, pruned=other).problems
    assert "the logits differ by" in problem


def test_the_config_says_the_heads_that_are_left(tmp_path: Path) -> None:
    family = next(family for family in FAMILIES if family.native)
    source = family.build(tmp_path / "source")
    prune(source, tmp_path / "target", {0: (0, 1), 1: (2, 3)})
    config = json.loads((tmp_path / "target/config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (4, 2)
    assert config["head_dim"] == 8
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "target").config.head_dim == 8
