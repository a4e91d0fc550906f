"""What pruned query heads cost a model, by how they are chosen, as the Markdown that the docs hold.

    python bench/pruning.py --model NAME=FOLDER --text NAME=FILE [--shares 1/8,1/4,1/2]

Cuts the text into halves at a line break: on the first heads are chosen and `o` is refitted, the
second is scored. Heads go by what masking each costs exactly, as `convert` chooses them with a
text (by the estimate, in one round or two), by the estimate in one round, by the weights alone as
it does without a text, and at random; the same share of each layer, or (`--across-layers`: all
rows; else one) of all layers together. The command below the table is
the estimate's; all cells convert and score as it does. `--tokens-to-choose` bounds what the exact
costs, one pass a head, are measured on; `--no-exact` leaves them out, and `--no-refit` the columns
of what was refitted. `--keep FILE`: a run that is stopped goes on with what it has.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from headcount.convert.conversion import convert
from headcount.convert.importance.across_layers import least_of_all
from headcount.convert.importance.by_text import (
    ScoredText,
    exact_importance,
    importance_by_text,
)
from headcount.convert.importance.head_importance import (
    HeadImportance,
    Scores,
    least_important,
)
from headcount.convert.importance.settling import pruned_in, settled
from headcount.convert.importance.weights import importance_by_weights
from headcount.convert.merge.ladder import QUALITIES
from headcount.convert.plan.pruning import shapes_to_have
from headcount.convert.plan.request import ConversionRequest, HeadsOfLayers
from headcount.convert.plan.source import read_source
from headcount.evaluate.evaluation import evaluate
from headcount.evaluate.evaluation_request import EvaluationRequest
from provenance import (
    block,
    halves,
    measured_in_words,
    model_in_words,
    parser_of,
    text_in_words,
    windows_in_words,
)

# layer -> the heads that go
Pruned = Mapping[int, tuple[int, ...]]


class Kept:
    """What was measured before with the same settings, in a file."""

    def __init__(self, path: Path | None, settings: str) -> None:
        self._path = path
        self._found: dict[str, Any] = {"settings": settings}
        if path is not None and path.exists():
            self._found = json.loads(path.read_text("utf-8"))
            if self._found["settings"] != settings:
                raise SystemExit(f"{path}: was measured with {self._found['settings']}")

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, JSON-ready, or gave before."""
        if name not in self._found:
            self._found[name] = make()
            if self._path is not None:
                self._path.write_text(json.dumps(self._found), "utf-8")
        return self._found[name]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A row: scores to choose by, several for chance, and whether all layers are one choice."""

    name: str
    scores: list[Scores]
    across: bool
    in_rounds: bool = False  # as `convert` chooses: scores are those that it begins with


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
        self.options, self.out = options, folder / "out"
        self.first, self.second = halves(options.text.path.read_text("utf-8"))
        self.texts = {name: folder / f"{name}.txt" for name in ("first", "second")}
        self.texts["first"].write_text(self.first, "utf-8")
        self.texts["second"].write_text(self.second, "utf-8")
        self.source = read_source(options.model.path)
        self.mixers = {index: m for (index, _), m in self.source.attention_map.mixers.items()}
        names = ("tokens", "tokens_to_choose", "calibration_tokens", "window", "across_layers")
        settings = {name: getattr(options, name) for name in names}
        self.kept = Kept(options.keep, str({"model": options.model.name, **settings}))
        self.before = self.evaluated(options.model.path, "before")
        self.ranked = ""  # how the estimate orders heads, where the exact costs are measured

    def evaluated(self, model: Path, name: str) -> Any:
        """The document of an evaluation on the second half."""
        options = self.options
        request = EvaluationRequest(
            model=str(model),
            text=self.texts["second"],
            window=options.window,
            stride=options.window,
            max_tokens=options.tokens,
            speed=False,
        )
        return self.kept.get(name, lambda: evaluate(request).document())

    def added(self, name: str, pruned: Pruned, *, refitted: bool) -> float:
        """Nats a token that the heads `pruned` are worth; `name` is the cell's."""

        def measure() -> float:
            convert(self.request(pruned, refitted), progress=False)
            loss = self.evaluated(self.out, f"{name}, evaluated")["model"]["loss"]
            return float(loss - self.before["model"]["loss"])

        return float(self.kept.get(name, measure))

    def request(self, pruned: Pruned, refitted: bool) -> ConversionRequest:
        refit: dict[str, Any] = {}
        if refitted:
            tokens = self.options.calibration_tokens
            refit = {"calibration": str(self.texts["first"]), "calibration_tokens": tokens}
            refit |= asdict(QUALITIES["good"])
        return ConversionRequest(
            source=self.options.model.path,
            target=self.out,
            num_key_value_heads=None,
            pruned_heads=pruned,
            overwrite=True,
            **refit,
        )

    def chosen(self, way: Way, scores: Scores, share: Fraction) -> Pruned:
        """The least of `scores`; of each layer in a shape that all can have."""
        if way.in_rounds:
            return self.chosen_in_rounds(share, across=way.across)
        if way.across:
            total = sum(mixer.num_attention_heads for mixer in self.mixers.values())
            return least_of_all(self.mixers, scores, int(share * total))
        return least_important(self.mixers, scores, shapes_to_have(self.source, share))

    def chosen_in_rounds(self, share: Fraction, *, across: bool) -> Pruned:
        """As a conversion with the first half as its text does."""
        request = ConversionRequest(
            source=self.options.model.path,
            target=self.out,
            num_key_value_heads=None,
            pruned_heads=share,
            across_layers=across,
            calibration=str(self.texts["first"]),
            calibration_tokens=self.options.tokens_to_choose,
        )

        def choose() -> HeadsOfLayers:
            named, _ = settled(self.source, request)
            return pruned_in(named)

        found = self.kept.get(f"{share} chosen{' across layers' if across else ''}", choose)
        return {int(index): tuple(heads) for index, heads in found.items()}

    def drawn(self, seed: int) -> Scores:
        """Scores of nothing: each head's is drawn."""
        generator = random.Random(seed)
        return {
            index: [generator.random() for _ in range(mixer.num_attention_heads)]
            for index, mixer in self.mixers.items()
        }

    def measured_scores(self) -> tuple[Scores | None, Scores]:
        """The exact costs, if they are asked for, and the estimate, on the first half."""
        tokens = self.options.tokens_to_choose
        text = ScoredText(name=str(self.texts["first"]), tokens=tokens, seed=0)

        def listed(found: HeadImportance) -> list[list[float]]:
            return [list(found.scores[index]) for index in self.mixers]

        def by_layer(found: list[list[float]]) -> Scores:
            return dict(zip(self.mixers, found, strict=True))

        if not self.options.exact:
            only = self.kept.get("estimate", lambda: listed(importance_by_text(self.source, text)))
            return None, by_layer(only)
        exact, estimate = self.kept.get(
            "scores", lambda: [listed(one) for one in exact_importance(self.source, text)]
        )
        return by_layer(exact), by_layer(estimate)

    def ways(self) -> Iterator[Way]:
        exact, estimate = self.measured_scores()
        across = self.options.across_layers
        if exact is not None:
            rho = correlation(exact, estimate)
            of = "Rank correlation of the estimate with the exact costs, over all heads"
            self.ranked = f" {of}: {rho:.2f}."
            yield Way(name="exact costs", scores=[exact], across=across)
        yield Way(name="`--calibration`", scores=[estimate], across=across, in_rounds=True)
        if not across:
            name = "`--calibration`, `--across-layers`"
            yield Way(name=name, scores=[estimate], across=True, in_rounds=True)
            yield Way(name="the estimate, in one round", scores=[estimate], across=False)
            weights = importance_by_weights(self.source).scores
            yield Way(name="the weights alone", scores=[weights], across=False)
        chance = [self.drawn(seed) for seed in range(self.options.seeds)]
        yield Way(name="chance", scores=chance, across=across)

    def rows(self) -> Iterator[str]:
        """A line a way to choose."""
        shares = [Fraction(share) for share in self.options.shares.split(",")]
        kinds = {False: "gone", True: "refitted"} if self.options.refit else {False: "gone"}
        heads = [what if r else f"{share} {what}" for share in shares for r, what in kinds.items()]
        yield f"| heads go by | {' | '.join(heads)} |"
        yield f"|---|{'---|' * len(heads)}"
        ways = list(self.ways())
        for refitted in kinds:  # what takes longer comes last, in case the run is stopped
            for way in ways:
                for share in shares:
                    self.cell(way, share, refitted=refitted)
        for way in ways:
            cells = [self.cell(way, share, refitted=r) for share in shares for r in kinds]
            yield f"| {way.name} | {' | '.join(cells)} |"

    def cell(self, way: Way, share: Fraction, *, refitted: bool) -> str:
        """The mean loss added, and the least and the most of several."""
        what = "refitted" if refitted else "gone"
        losses = [
            self.added(
                f"{way.name}, {share} {what}, {seed}",
                self.chosen(way, scores, share),
                refitted=refitted,
            )
            for seed, scores in enumerate(way.scores)
        ]
        mean = sum(losses) / len(losses)
        spread = f" ({min(losses):+.3f} to {max(losses):+.3f})" if len(losses) > 1 else ""
        return f"{mean:+.3f}{spread}"

    def header(self) -> str:
        """The line above the table: what its figures are figures of."""
        options, settings = self.options, self.before["settings"]
        which = "of all layers together" if options.across_layers else "of each layer"
        return (
            f"Model: {model_in_words(options.model)}."
            f" Text: {text_in_words(f'the second half of {options.text.name}', self.second)}, loss"
            f" {self.before['model']['loss']:.3f} before. Heads: {which}, unless a row says"
            f" otherwise. Tokens: {self.before['model']['tokens']:,} scored,"
            f" {windows_in_words(settings)}; of {text_in_words('the first half', self.first)}"
            f" {options.tokens_to_choose:,} to choose heads by, and at most"
            f" {options.calibration_tokens:,} to refit with. Seed: 0. Chance: seeds 0 to"
            f" {options.seeds - 1}, mean (least to most).{self.ranked}"
            f" Measured: {measured_in_words(settings)}."
        )

    def command(self) -> str:
        """The refitted cell of `--calibration`, of the first share."""
        options = self.options
        across = " --across-layers" if options.across_layers else ""
        window = f" --window {options.window} --stride {options.window}" if options.window else ""
        return (
            f"convert {options.model.name} out --prune-heads {options.shares.split(',')[0]}{across}"
            f" --quality good --calibration first.txt --calibration-tokens"
            f" {options.calibration_tokens} --evaluate --text second.txt --max-tokens"
            f" {options.tokens}{window} --no-speed"
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shares", default="1/8,1/4,1/2")
    parser.add_argument("--across-layers", action="store_true")
    parser.add_argument("--tokens", type=int, default=8192, help="scored at most")
    parser.add_argument("--tokens-to-choose", type=int, default=8192)
    parser.add_argument("--calibration-tokens", type=int, default=16384)
    parser.add_argument("--window", type=int, help="and stride; default: evaluate's")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-exact", dest="exact", action="store_false")
    parser.add_argument("--no-refit", dest="refit", action="store_false")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        table = list(bench.rows())
        lines = block("pruning.py", bench.header(), table, [bench.command()])
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
