"""What pruned query heads cost a model, by how they are chosen, as the Markdown that the docs hold.

    python bench/pruning.py --model NAME=FOLDER --text NAME=FILE [--shares 1/8,1/4,1/2]

Cuts the text into halves at a line break: on the first heads are chosen and `o` is refitted, the
second is scored. Heads go by what masking each costs exactly, by the estimate that `convert` takes
with a text, by the weights alone as it does without, and at random. Everything is converted and
scored by `headcount convert --evaluate`; the commands below the table are those of `convert`'s own
choice. `--tokens-to-choose` bounds what the exact costs, one pass a head, are measured on.
"""

import argparse
import random
import tempfile
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from headcount.convert.importance.by_text import ScoredText, exact_importance
from headcount.convert.importance.head_importance import Scores, least_important
from headcount.convert.importance.weights import importance_by_weights
from headcount.convert.plan.pruning import shapes_to_have
from headcount.convert.plan.source import ConversionSource, read_source
from provenance import (
    block,
    halves,
    headcount,
    measured_in_words,
    model_in_words,
    named,
    text_in_words,
    windows_in_words,
)

# layer -> the heads that go
Pruned = Mapping[int, tuple[int, ...]]
REFIT = "--quality good --calibration first.txt"


def chosen(source: ConversionSource, scores: Scores, share: Fraction) -> Pruned:
    """The least of `scores`, in a shape that all layers can have."""
    mixers = {index: mixer for (index, _), mixer in source.attention_map.mixers.items()}
    return least_important(mixers, scores, shapes_to_have(source, share))


def drawn(source: ConversionSource, seed: int) -> Scores:
    """Scores of nothing: each head's is drawn."""
    generator = random.Random(seed)
    return {
        index: [generator.random() for _ in range(mixer.num_attention_heads)]
        for (index, _), mixer in source.attention_map.mixers.items()
    }


def listed(pruned: Pruned) -> str:
    """As `--prune-heads` takes it."""
    return ",".join(f"{i}:{'+'.join(map(str, heads))}" for i, heads in pruned.items())


def ranks(values: list[float]) -> torch.Tensor:
    """From 0, for values that all differ but for a few."""
    return torch.tensor(values).argsort().argsort().double()


def correlation(one: Scores, other: Scores) -> float:
    """Spearman's, over the heads of all layers."""
    flat = [[float(s) for index in sorted(one) for s in found[index]] for found in (one, other)]
    return float(torch.corrcoef(torch.stack([ranks(values) for values in flat]))[0, 1])


class Bench:
    """One model and one text."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.first, self.second = halves(options.text.path.read_text("utf-8"))
        self.places = {options.model.name: options.model.path, "out": folder / "out"}
        for name, content in (("first.txt", self.first), ("second.txt", self.second)):
            self.places[name] = folder / name
            self.places[name].write_text(content, "utf-8")
        self.source = read_source(options.model.path)
        self.evaluation: dict[str, Any] = {}

    def command(self, pruned: str, refit: str) -> str:
        options = self.options
        return (
            f"convert {options.model.name} out --prune-heads {pruned} {refit}"
            f" --calibration-tokens {options.calibration_tokens} --evaluate --text second.txt"
            f" --max-tokens {options.tokens} --no-speed --overwrite"
        )

    def added(self, pruned: Pruned, *, refitted: bool) -> float:
        """Nats a token."""
        command = self.command(listed(pruned), REFIT)
        if not refitted:
            tokens = f" --calibration-tokens {self.options.calibration_tokens}"
            command = command.replace(f" {REFIT}{tokens}", "")
        documents: Any = headcount(command, self.places)  # the conversion's, the evaluation's
        self.evaluation = documents[1]
        return float(self.evaluation["delta_loss"])

    def rows(self) -> Iterator[str]:
        """A line a way to choose."""
        shares = [Fraction(share) for share in self.options.shares.split(",")]
        heads = " | ".join(f"{share} gone | refitted" for share in shares)
        yield f"| heads go by | {heads} |"
        yield f"|---|{'---|---|' * len(shares)}"
        text = ScoredText(
            name=str(self.places["first.txt"]), tokens=self.options.tokens_to_choose, seed=0
        )
        exact, estimate = exact_importance(self.source, text)
        self.correlation = correlation(exact.scores, estimate.scores)
        ways = {
            "exact costs": [exact.scores],
            "the estimate, `--calibration`": [estimate.scores],
            "the weights alone": [importance_by_weights(self.source).scores],
            "chance": [drawn(self.source, seed) for seed in range(self.options.seeds)],
        }
        for name, found in ways.items():
            cells = [self.cell(found, share, refitted=r) for share in shares for r in (False, True)]
            yield f"| {name} | {' | '.join(cells)} |"

    def cell(self, found: list[Scores], share: Fraction, *, refitted: bool) -> str:
        """The mean loss added, and the least and the most of several."""
        losses = [
            self.added(chosen(self.source, scores, share), refitted=refitted) for scores in found
        ]
        mean = sum(losses) / len(losses)
        spread = f" ({min(losses):+.3f} to {max(losses):+.3f})" if len(losses) > 1 else ""
        return f"{mean:+.3f}{spread}"

    def header(self) -> str:
        """The line above the table: what its figures are figures of."""
        options, settings = self.options, self.evaluation["settings"]
        return (
            f"Model: {model_in_words(options.model)}."
            f" Text: {text_in_words(f'the second half of {options.text.name}', self.second)}, loss"
            f" {self.evaluation['against']['loss']:.3f} before."
            f" Tokens: {self.evaluation['model']['tokens']:,} scored,"
            f" {windows_in_words(settings)}; of {text_in_words('the first half', self.first)}"
            f" {options.tokens_to_choose:,} to choose heads by, and at most"
            f" {options.calibration_tokens:,} to refit with. Seed: 0. Chance: seeds 0 to"
            f" {options.seeds - 1}, mean (least to most). Rank correlation of the estimate with the"
            f" exact costs, over all heads: {self.correlation:.2f}."
            f" Measured: {measured_in_words(settings)}."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=named, required=True, metavar="NAME=FOLDER")
    parser.add_argument("--text", type=named, required=True, metavar="NAME=FILE")
    parser.add_argument("--shares", default="1/8,1/4,1/2")
    parser.add_argument("--tokens", type=int, default=8192, help="scored at most")
    parser.add_argument("--tokens-to-choose", type=int, default=8192)
    parser.add_argument("--calibration-tokens", type=int, default=16384)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        table = list(bench.rows())
        share = options.shares.split(",")[0]
        commands = [bench.command(share, REFIT)]
        print("\n".join(block("pruning.py", bench.header(), table, commands)), flush=True)


if __name__ == "__main__":
    main()
