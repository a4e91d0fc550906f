"""Scores against those of TransformerLens' head_detector, for every type that both read.

tools/record_transformer_lens.py asked it; here the same weights are run on the same tokens.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headcount.heads.patterns import run_for_patterns
from headcount.heads.scores import Targets, self_attention_sums, targets_of
from lens_models import lens_model, lens_tokens

pytestmark = pytest.mark.needs_convert

LINES = Path(__file__).with_name("transformer_lens.jsonl").read_text("utf-8").splitlines()[1:]
RECORD: dict[str, dict[str, Any]] = {line["model_type"]: line for line in map(json.loads, LINES)}


def scores(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """[layers, heads] by role: the share of all attention that falls on it, as "mul" has it."""
    ids = lens_tokens()
    found: dict[str, list[torch.Tensor]] = {}

    def take(path: str, pattern: torch.Tensor) -> None:
        for name, share in shares(pattern, ids).items():
            found.setdefault(name, []).append(share)

    model = lens_model(config)
    run_for_patterns(model, take, queries=ids.shape[1], input_ids=ids)
    return {name: torch.stack(layers) for name, layers in found.items()}


def shares(pattern: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    each: dict[str, list[torch.Tensor]] = {}
    for row in range(len(ids)):
        own = slice(row, row + 1)
        sums = self_attention_sums(pattern[own], Targets(*(t[own] for t in targets_of(ids))))
        for name, on in sums.on.items():
            each.setdefault(name, []).append(on.weight / sums.rows.attended)
    return {name: torch.stack(rows).mean(dim=0) for name, rows in each.items()}


@pytest.mark.parametrize("model_type", RECORD)
def test_scores_are_those_of_transformer_lens(model_type: str) -> None:
    line = RECORD[model_type]
    found = scores(line["config"])
    for name, expected in line["scores"].items():
        assert found[name].tolist() == [pytest.approx(row, abs=1e-4) for row in expected], name
