"""What it would change to merge heads by what they are worth, as the Markdown that the docs hold.

    python bench/weighing.py --model NAME=FOLDER --text NAME=FILE --kv-heads 4,2

`convert` chooses groups of K/V heads, and merges them, by what is lost of their scores and outputs.
Here what is lost of each query head counts in other ways, too: `worth` times what is lost, or
`worth` times the share that is lost of what the head has. A head's worth is the size of the slope
of the loss along a gate on it (Michel et al. 2019, arXiv 1905.10650, eq. 2), which is not negative.
That is in no option of `convert`, since it is not better everywhere: the functions that sum up what
is lost are exchanged here. Of the methods that keep one head of each group, one that keeps the head
of most worth is compared with those that there are (`--choices`).

Cuts the text into halves at a line break: the first calibrates and says what heads are worth, rows
of `--window` tokens of the second are scored. `--keep FILE`: a run that is stopped goes on.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import headcount.convert.models.on_import  # noqa: F401  (classes of our modelling file)
from headcount.convert.conversion import convert
from headcount.convert.importance import estimate
from headcount.convert.importance.by_text import ScoredText, importance_by_text
from headcount.convert.merge import grouping, merged_group, merging
from headcount.convert.merge.attention_weights import AttentionWeights, Moments
from headcount.convert.merge.costs import costs_of
from headcount.convert.merge.freedom import Freedom
from headcount.convert.merge.head_moments import white_moments
from headcount.convert.merge.ladder import QUALITIES, WITH_TEXT
from headcount.convert.merge.merged_group import merge_group
from headcount.convert.plan.request import CHOOSING, ConversionRequest
from headcount.convert.plan.source import ConversionSource, read_source
from headcount.convert.rewrite.tensors import weights_of
from headcount.convert.stream import weight_file
from headcount.convert.stream.pooling import first_heads
from headcount.convert.stream.reader import SourceReader
from provenance import block, halves, measured_in_words, model_in_words, parser_of, text_in_words

# How what is lost counts -> where: in the choice of groups (g), or also when they are merged (gm).
WAYS = {
    "what is lost": (None, "g"),
    "worth x lost, groups": ("imp", "g"),
    "worth x lost, groups and merge": ("imp", "gm"),
    "worth x share, groups": ("rel", "g"),
    "worth x share, groups and merge": ("rel", "gm"),
}
CHOICES = (*CHOOSING, "the most worth")
LEAST = 0.02  # of the mean: no head counts for less
# An attention is known by some of its numbers.
Worth = Mapping[tuple[float, ...], torch.Tensor]


def known_by(weights: AttentionWeights) -> tuple[float, ...]:
    return tuple(weights.q[0, 0, :6].float().tolist())


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How much what is lost of the scores and of the output of each query head counts, [H] each."""

    scores: torch.Tensor
    outputs: torch.Tensor

    @classmethod
    def of(cls, way: str, weights: AttentionWeights, moments: Moments, worth: Worth) -> "Counts":
        own = worth[known_by(weights)]
        own = own / own.mean() + LEAST
        if way == "imp":
            return cls(scores=own, outputs=own)
        heads = torch.arange(len(weights.q)) // weights.group_size
        keys = _own_blocks(moments.keys, len(weights.k))[heads]
        values = _own_blocks(moments.values, len(weights.v))[heads]
        outputs = weights.o.double()
        scores = (moments.queries.double() * keys).sum((-2, -1)).clamp_min(1e-12)
        given = ((outputs.mT @ outputs) * values).sum((-2, -1)).clamp_min(1e-12)
        return cls(scores=own * scores.mean() / scores, outputs=own * given.mean() / given)


def _own_blocks(moments: torch.Tensor, heads: int) -> torch.Tensor:
    """[G, d, d]: of each head by itself."""
    width = len(moments) // heads
    spread = moments.double().reshape(heads, width, heads, width)
    return spread.diagonal(dim1=0, dim2=2).movedim(-1, 0)


def scaled(weights: AttentionWeights, counts: torch.Tensor) -> AttentionWeights:
    """With output projections whose squares count so much."""
    return replace(weights, o=weights.o.double() * counts.sqrt()[:, None, None])


def with_queries(moments: Moments, counts: torch.Tensor) -> Moments:
    return replace(moments, queries=moments.queries.double() * counts[:, None, None])


@contextmanager
def counting(way: str | None, where: str, worth: Worth) -> Iterator[None]:
    """Inside, conversions count what is lost of heads as `way` says."""
    if way is None:
        yield
        return
    current: list[Counts] = []
    key_maps, value_maps = merged_group._key_maps, merged_group._value_maps

    def costs(weights: AttentionWeights, freedom: Freedom, moments: Moments) -> Any:
        counts = Counts.of(way, weights, moments, worth)
        read = with_queries(moments, counts.scores)
        return costs_of(scaled(weights, counts.outputs), freedom, read)

    def merge(
        weights: AttentionWeights,
        freedom: Freedom,
        members: Sequence[int],
        moments: Moments | None,
        method: Any,
    ) -> Any:
        seen = white_moments(weights) if moments is None else moments
        counts = Counts.of(way, weights, seen, worth)
        rows = weights.queries_of(members)
        current[:] = [Counts(scores=counts.scores[rows], outputs=counts.outputs[rows])]
        return merge_group(weights, freedom, members, moments, method)

    def keys(own: AttentionWeights, freedom: Freedom, known: Moments, method: Any) -> Any:
        return key_maps(own, freedom, with_queries(known, current[0].scores), method)

    def values(own: AttentionWeights, *rest: Any) -> Any:
        return value_maps(scaled(own, current[0].outputs), *rest)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(grouping, "costs_of", costs))
        if where == "gm":
            stack.enter_context(mock.patch.object(merging, "merge_group", merge))
            stack.enter_context(mock.patch.object(merged_group, "_key_maps", keys))
            stack.enter_context(mock.patch.object(merged_group, "_value_maps", values))
        yield


@contextmanager
def keeping_the_most_worth(worth: Mapping[int, Sequence[float]]) -> Iterator[None]:
    """Inside, `--method first` keeps the K/V head of each run whose query heads are worth most."""

    def choose(stream: Any, layer: int, cross: bool) -> tuple[int, ...]:
        runs = weight_file._pool_action(stream._weights[layer, cross][0]).sizes
        size = len(worth[layer]) // sum(runs)
        of_head = [sum(worth[layer][h * size : h * size + size]) for h in range(sum(runs))]
        ends = [*first_heads(runs), sum(runs)]
        return tuple(max(range(a, b), key=lambda h: of_head[h]) for a, b in pairwise(ends))

    with mock.patch.object(weight_file.WeightStream, "_choose", choose):
        yield


class Bench:
    """One model and one text."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.out, self.texts = options, folder / "out", folder
        self.first, self.second = halves(options.text.path.read_text("utf-8"))
        (folder / "first.txt").write_text(self.first, "utf-8")
        self.found = {}
        if options.keep is not None and options.keep.exists():
            lines = options.keep.read_text("utf-8").splitlines()
            self.found = {one["id"]: one["d"] for one in map(json.loads, lines)}
        tokenizer = AutoTokenizer.from_pretrained(options.model.path)
        ids = tokenizer(self.second, add_special_tokens=False)["input_ids"][: options.tokens]
        count = len(ids) // options.window
        self.rows = torch.tensor(ids[: count * options.window]).view(count, options.window)
        self.before = self.loss(options.model.path)
        source = read_source(options.model.path)
        text = ScoredText(name=str(folder / "first.txt"), tokens=options.tokens_to_weigh)
        with mock.patch.object(estimate, "_to_second_order", lambda slopes: slopes.sum(1).abs()):
            self.scores = importance_by_text(source, text).scores
        self.worth = dict(self.known(source))

    def known(self, source: ConversionSource) -> Iterator[tuple[tuple[float, ...], torch.Tensor]]:
        with SourceReader(source.checkpoint.files) as reader:
            for (index, _), tensors in source.attention_map.attentions.items():
                worth = torch.tensor(self.scores[index], dtype=torch.float64)
                yield known_by(weights_of(tensors, reader.tensor)), worth

    @torch.no_grad()
    def loss(self, folder: Path) -> float:
        """Nats a token, the first of each row apart."""
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        sums = [float(model(input_ids=r, labels=r).loss) * len(r) for r in self.rows.split(8)]
        return sum(sums) / len(self.rows)

    def added(self, name: str, make: Callable[[], object]) -> float:
        if name not in self.found:
            make()
            self.found[name] = self.loss(self.out) - self.before
            if self.options.keep is not None:
                with self.options.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"id": name, "d": self.found[name]}) + "\n")
        return float(self.found[name])

    def converted(self, count: int, **options: Any) -> None:
        request = ConversionRequest(
            source=self.options.model.path,
            target=self.out,
            num_key_value_heads=count,
            overwrite=True,
            **options,
        )
        convert(request, progress=False)

    def merged(self, count: int, quality: Any, way: str | None, where: str) -> float:
        ladder = QUALITIES[quality.removesuffix(WITH_TEXT)]

        def make() -> None:
            with counting(way, where, self.worth):
                self.converted(
                    count,
                    method=ladder.method,
                    grouping=ladder.grouping,
                    refit=ladder.refit,
                    calibration=str(self.texts / "first.txt"),
                    calibration_tokens=self.options.calibration_tokens,
                )

        return self.added(f"{count} {quality} est {way} {where}", make)

    def chosen(self, count: int, choice: Any) -> float:
        def make() -> None:
            if choice in CHOOSING:
                self.converted(count, method=choice)
                return
            with keeping_the_most_worth(self.scores):
                self.converted(count, method="first")

        return self.added(f"{count} {choice}", make)

    def table(self) -> Iterator[str]:
        counts = [int(count) for count in self.options.kv_heads.split(",")]
        qualities = self.options.qualities.split(",")
        heads = [f"{count}: `{quality}`" for count in counts for quality in qualities]
        yield f"| what counts | {' | '.join(heads)} |"
        yield f"|---|{'---|' * len(heads)}"
        for name, (way, where) in WAYS.items():
            cells = []
            for count in counts:
                for quality in qualities:
                    is_said = way is None or where == "gm" or count > 1  # one group: no choice
                    cells.append(
                        f"{self.merged(count, quality, way, where):+.3f}" if is_said else ""
                    )
            yield f"| {name} | {' | '.join(cells)} |"

    def choices(self) -> Iterator[str]:
        """The methods that keep a head as it is, on neighbours."""
        counts = [int(count) for count in self.options.kv_heads.split(",")]
        yield f"| of neighbours stays | {' | '.join(map(str, counts))} |"
        yield f"|---|{'---|' * len(counts)}"
        for choice in CHOICES:
            cells = [f"{self.chosen(count, choice):+.3f}" for count in counts]
            yield f"| {choice} | {' | '.join(cells)} |"

    def header(self) -> str:
        options = self.options
        settings = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": "cpu",
        }
        return (
            f"Model: {model_in_words(options.model)}."
            f" Text: {text_in_words(f'the second half of {options.text.name}', self.second)}, loss"
            f" {self.before:.3f} before. Tokens: {self.rows.numel():,} scored, windows"
            f" of {options.window} by {options.window}, without BOS; of"
            f" {text_in_words('the first half', self.first)}"
            f" {options.tokens_to_weigh:,} to weigh heads by and at most"
            f" {options.calibration_tokens:,} to calibrate. Seed: 0."
            f" Measured: {measured_in_words(settings)}."
        )

    def command(self) -> str:
        """What gives the first row."""
        options = self.options
        return (
            f"convert {options.model.name} --sweep {options.kv_heads} --sweep-methods"
            f" {options.qualities} --calibration first.txt --calibration-tokens"
            f" {options.calibration_tokens} --text second.txt --max-tokens {options.tokens}"
            f" --window {options.window} --stride {options.window} --seed 0"
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kv-heads", required=True, metavar="4,2,1")
    parser.add_argument("--qualities", default="fast+text,good")
    parser.add_argument("--choices", action="store_true")
    parser.add_argument("--tokens", type=int, default=8192, help="scored at most")
    parser.add_argument("--tokens-to-weigh", type=int, default=4096)
    parser.add_argument("--calibration-tokens", type=int, default=8192)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        table = [*bench.table(), *(["", *bench.choices()] if options.choices else [])]
        lines = block("weighing.py", bench.header(), table, [bench.command()])
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
