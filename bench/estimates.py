"""How well heads are ordered without ablating each, as the Markdown that the docs hold.

    python bench/estimates.py --model NAME=FOLDER --text NAME=FILE [--tokens 4096]

Exact costs of masking each head, on the first half of the text, against: the size of the loss's
slope along a gate on the head in each row (Michel et al. 2019, eq. 2), the estimate that `convert`
takes, the size of the head's OV circuit, which it takes without text, and that times the root of
the size of its QK circuit. Spearman's rank correlation, the mean of layers, and over all heads of
those that compare layers; and what the heads of each layer that go first cost exactly, summed, if
an eighth (at least one), a quarter or a half of them goes. `--keep FILE`: the exact costs.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import torch
import transformers

from headcount.convert.calibrate.calibration_text import planned_text
from headcount.convert.importance import estimate
from headcount.convert.importance.by_text import (
    ScoredText,
    exact_importance,
    importance_by_text,
)
from headcount.convert.importance.weights import importance_by_weights
from headcount.convert.plan.source import ConversionSource, read_source
from headcount.convert.rewrite.tensors import weights_of
from headcount.convert.stream.reader import SourceReader
from headcount.heads.importance.rank_correlation import spearman
from provenance import block, halves, measured_in_words, model_in_words, parser_of, text_in_words

Scores = Mapping[int, Sequence[float]]
SHARES = (8, 4, 2)


def with_queries_and_keys(source: ConversionSource, sizes: Scores) -> Scores:
    """|W_o W_v| times the root of |W_q^T W_k|, Frobenius norms."""
    found = {}
    with SourceReader(source.checkpoint.files) as reader:
        for (index, _), tensors in source.attention_map.attentions.items():
            weights = weights_of(tensors, reader.tensor)
            keys = weights.k.double().repeat_interleave(weights.group_size, 0)
            queries = weights.q.double()
            square = ((queries @ queries.mT) * (keys @ keys.mT)).sum((-2, -1)).clamp_min(0)
            found[index] = (torch.tensor(sizes[index]).double() * square**0.25).tolist()
    return found


def row(name: str, found: Scores, exact: Scores, *, compares_layers: bool) -> str:
    within = sum(spearman(exact[i], found[i]) or 0.0 for i in exact) / len(exact)
    flat = [[score for i in sorted(exact) for score in one[i]] for one in (exact, found)]
    over = f"{spearman(*flat):.2f}" if compares_layers else ""
    costs = " | ".join(f"{first_to_go(found, exact, part):+.3f}" for part in SHARES)
    return f"| {name} | {within:.2f} | {over} | {costs} |"


def first_to_go(found: Scores, exact: Scores, part: int) -> float:
    """The exact costs of the first of each layer."""
    total = 0.0
    for index, costs in exact.items():
        order = sorted(range(len(costs)), key=lambda head: found[index][head])
        total += sum(costs[head] for head in order[: max(1, len(costs) // part)])
    return total


def exact_costs(options: argparse.Namespace, source: ConversionSource, text: ScoredText) -> Scores:
    if options.keep is not None and options.keep.exists():
        kept = json.loads(options.keep.read_text("utf-8"))
        return {int(index): scores for index, scores in kept.items()}
    found = exact_importance(source, text)[0].scores
    if options.keep is not None:
        options.keep.write_text(json.dumps(found), "utf-8")
    return found


def table(options: argparse.Namespace, source: ConversionSource, text: ScoredText) -> Iterator[str]:
    exact = exact_costs(options, source, text)
    with mock.patch.object(estimate, "_to_second_order", lambda slopes: slopes.sum(1).abs()):
        sizes = importance_by_text(source, text).scores
    weights = importance_by_weights(source).scores
    both = with_queries_and_keys(source, weights)
    yield "| ordered by | rank correlation in layers | over all | 1/8 | 1/4 | 1/2 |"
    yield "|---|---|---|---|---|---|"
    yield row("exact costs", exact, exact, compares_layers=True)
    yield row("the size of slopes", sizes, exact, compares_layers=True)
    second = importance_by_text(source, text).scores
    yield row("the estimate", second, exact, compares_layers=True)
    yield row("the weights alone: OV", weights, exact, compares_layers=False)
    yield row("OV times the root of QK", both, exact, compares_layers=False)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, _ = halves(options.text.path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "first.txt")
        path.write_text(first, "utf-8")
        text = ScoredText(name=str(path), tokens=options.tokens)
        source = read_source(options.model.path)
        row = planned_text(source, text.name, text.tokens, text.seed).ids.shape[1]
        lines = list(table(options, source, text))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    header = (
        f"Model: {model_in_words(options.model)}. Text:"
        f" {text_in_words(f'the first half of {options.text.name}', first)}. Tokens:"
        f" {options.tokens:,} scored, windows of {row} by {row}, without BOS; heads are masked on"
        f" the same. Seed: 0. Measured:"
        f" {measured_in_words({**versions, 'device': 'cpu'})}."
    )
    command = (
        f"heads {options.model.name} --importance --exact --text first.txt --max-tokens"
        f" {options.tokens}"
    )
    print("\n".join(block("estimates.py", header, lines, [command])), flush=True)


if __name__ == "__main__":
    main()
