"""What a latent cache costs a model beside merged heads of the same bytes, as the docs hold it.

    python bench/latent.py --model NAME=FOLDER --text NAME=FILE --sizes 1/2,1/4,1/8

Cuts the text into halves at a line break: the first calibrates, the second is scored. Each cell is
a `headcount convert` and a `headcount evaluate` of its own. `--mla` measures latents of the other
home, too, and `--merged 4,2,1` the numbers of K/V heads that keep as many bytes, one for each size
(`-`: there is none); without it no heads are merged. Rows go to stderr as they are made. What a
cache holds decides how fast its model is, not how well it was fitted: so speed and bytes are those
of the first method, each beside the source's in one run, in which the two take turns.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from provenance import (
    block,
    halves,
    headcount,
    measured_in_words,
    model_in_words,
    parser_of,
    text_in_words,
    windows_in_words,
)

# What each method adds to a conversion; those that read text also get that.
METHODS = {
    "fast": "--quality fast",
    "fast+text": "--quality fast --calibration first.txt",
    "good": "--quality good --calibration first.txt",
    "best": "--quality best --calibration first.txt",
}

# What `Measured.price` tells, in shares of the source's.
_PRICES = ("bytes, of the source's", "decode speed, of the source's", "prefill speed")

# In place of a size that there is not.
_NO_CELL = "-"

# What the cache holds with each home of latents.
NAMES = {"latent": "latents", "mla": "latents and a key that rotates (MLA)"}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The loss of a conversion, and its evaluation beside the source, where there was one."""

    loss: float
    beside: dict[str, Any] | None

    def price(self) -> tuple[str, str, str]:
        """Bytes of the cache, decode and prefill speed, as shares of the source's."""
        assert self.beside is not None
        cache, speed = self.beside["cache_bytes"], self.beside["speed"]
        found = (cache["measured"] / cache["against"]["measured"], speed["decode_ratio"])
        bytes_share, decode, prefill = (*found, speed["prefill_ratio"])
        return f"{bytes_share:.4g}", f"{decode:.2f}", f"{prefill:.2f}"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One model, and where its halves of a text lie."""

    options: argparse.Namespace
    places: dict[str, Path]

    def convert(self, what: str, method: str) -> str:
        """The command of a conversion."""
        line = f"convert {self.options.model.name} out {what} {METHODS[method]}"
        if "--calibration" in line:
            line += f" --calibration-tokens {self.options.calibration_tokens}"
            if self.options.row_tokens:
                line += f" --calibration-row-tokens {self.options.row_tokens}"
        return f"{line} --seed {self.options.seed}"

    def evaluate(self, name: str) -> str:
        line = f"evaluate {name} --text second.txt --max-tokens {self.options.tokens} --no-speed"
        windows = {"window": self.options.window, "stride": self.options.stride}
        return line + "".join(f" --{name} {size}" for name, size in windows.items() if size)

    def beside(self) -> str:
        """The command that measures speed and bytes of a conversion beside the source's."""
        return (
            f"evaluate out --against {self.options.model.name} --text second.txt --max-tokens 512"
            " --no-roles --behaviour none"
        )

    def measured(self, what: str, method: str, is_first: bool) -> Measured:
        """A conversion, which is gone afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            places = {**self.places, "out": Path(folder, "out")}
            words = [str(places.get(w, w)) for w in self.convert(what, method).split()]
            call = [sys.executable, "-m", "headcount", *words]
            if subprocess.run(call, stdout=subprocess.DEVNULL).returncode:
                raise SystemExit(f"headcount {' '.join(words)} failed")
            scored = headcount(self.evaluate("out"), places)
            beside = headcount(self.beside(), places) if is_first else None
        return Measured(loss=scored["model"]["loss"], beside=beside)


def rows(bench: Bench, base: float) -> Iterator[str]:
    """A line a method, a column a size, for latents and for merged heads."""
    options = bench.options
    sizes, methods = options.sizes.split(","), options.methods.split(",")
    others = (options.other_methods or options.methods).split(",")
    kinds = [(NAMES["latent"], methods, [f"--latent {size}" for size in sizes])]
    if options.mla:
        asked = [f"--latent {size} --home mla" for size in options.mla.split(",")]
        kinds.append((NAMES["mla"], others, asked))
    if options.merged:
        asked = [f"--kv-heads {count}" for count in options.merged.split(",")]
        kinds.append(("merged heads", others, asked))
    yield f"| cache | method | {' | '.join(sizes)} |"
    yield f"|---|---|{'---|' * len(sizes)}"
    for kind, own_methods, asked in kinds:
        for number, method in enumerate(own_methods):
            found = [
                None if _NO_CELL in what.split() else bench.measured(what, method, number == 0)
                for what in asked
            ]
            losses = [f"{one.loss - base:+.4f}" if one else None for one in found]
            yield _row(kind, f"`{method}`", losses)
            if number == 0:
                prices = [one.price() if one else [None] * len(_PRICES) for one in found]
                for name, cells in zip(_PRICES, zip(*prices, strict=True), strict=True):
                    yield _row(kind, name, cells)


def _row(kind: str, name: str, cells: Iterable[str | None]) -> str:
    row = f"| {kind} | {name} | {' | '.join(cell or _NO_CELL for cell in cells)} |"
    print(row, file=sys.stderr, flush=True)
    return row


def header(options: argparse.Namespace, texts: Sequence[str], document: dict[str, Any]) -> str:
    """The line above a table: what its figures are figures of."""
    settings, before = document["settings"], document["cache_bytes"]["measured"]
    rows = f", in rows of {options.row_tokens:,}" if options.row_tokens else ""
    return (
        f"Model: {model_in_words(options.model)}."
        f" Text: {text_in_words(f'the second half of {options.text.name}', texts[1])}, loss"
        f" {document['model']['loss']:.4f} before."
        f" Tokens: {document['model']['tokens']:,} scored, {windows_in_words(settings)};"
        f" at most {options.calibration_tokens:,} of {text_in_words('the first half', texts[0])} to"
        f" calibrate{rows}. Seed: {options.seed}. Measured: {measured_in_words(settings)}."
        f" The source's cache as measured: {before / 2**10:,.0f} KiB. Figures: nats a token added;"
        " bytes and speed are those of the first method's result beside the source, with one"
        " sequence of at most 512 + 32 tokens."
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="1/2,1/4,1/8")
    parser.add_argument("--mla", metavar="1/2,-,-", help="sizes for the other home, too")
    parser.add_argument("--merged", metavar="4,2,1", help="K/V heads of as many bytes")
    parser.add_argument("--other-methods", help="of these two; default: as --methods")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--tokens", type=int, default=16384, help="scored at most")
    parser.add_argument("--calibration-tokens", type=int, default=32768)
    parser.add_argument(
        "--row-tokens", type=int, help="of a row of calibration; default: convert's"
    )
    parser.add_argument("--window", type=int, help="default: evaluate's")
    parser.add_argument("--stride", type=int, help="default: evaluate's")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = halves(options.text.path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        places = {options.model.name: options.model.path}
        for name, content in zip(("first.txt", "second.txt"), texts, strict=True):
            places[name] = Path(folder, name)
            places[name].write_text(content, "utf-8")
        bench = Bench(options=options, places=places)
        before = headcount(bench.evaluate(options.model.name), places)
        table = list(rows(bench, before["model"]["loss"]))
    above = header(options, texts, before)
    methods = options.methods.split(",")
    first = f"--latent {options.sizes.split(',')[0]}"
    commands = [bench.convert(first, method) for method in methods]
    commands += [bench.evaluate("out"), bench.beside()]
    print("\n".join(block("latent.py", above, table, commands)), flush=True)


if __name__ == "__main__":
    main()
