"""What a latent cache costs a model beside merged heads of the same bytes, as the docs hold it.

    python bench/latent.py --model NAME=FOLDER --text NAME=FILE --sizes 1/2,1/4,1/8

Cuts the text into halves at a line break: the first calibrates, the second is scored. Each cell is
a `headcount convert` and a `headcount evaluate` of its own. `--homes latent,mla` measures latents
of both homes. `--merged 4,2,1` names the numbers of K/V heads that keep as many bytes, one for each
size; without it no heads are merged. Rows go to stderr as they are made.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
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

# What the cache holds with each home of latents.
NAMES = {"latent": "latents", "mla": "latents and a key that rotates (MLA)"}


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
        return f"{line} --seed {self.options.seed}"

    def evaluate(self, name: str) -> str:
        line = f"evaluate {name} --text second.txt --max-tokens {self.options.tokens} --no-speed"
        return line + (f" --window {self.options.window}" if self.options.window else "")

    def measured(self, what: str, method: str) -> dict[str, Any]:
        """The evaluation of a conversion, which is gone afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            places = {**self.places, "out": Path(folder, "out")}
            words = [str(places.get(w, w)) for w in self.convert(what, method).split()]
            call = [sys.executable, "-m", "headcount", *words]
            if subprocess.run(call, stdout=subprocess.DEVNULL).returncode:
                raise SystemExit(f"headcount {' '.join(words)} failed")
            return headcount(self.evaluate("out"), places)


def rows(bench: Bench, base: float, caches: dict[str, int]) -> Iterator[str]:
    """A line a method, a column a size, for latents and for merged heads."""
    options = bench.options
    sizes, merged = options.sizes.split(","), (options.merged or "").split(",")
    kinds = [
        (NAMES[home], [f"--latent {size} --home {home}" for size in sizes])
        for home in options.homes.split(",")
    ]
    if options.merged:
        kinds.append(("merged heads", [f"--kv-heads {count}" for count in merged]))
    yield f"| cache | method | {' | '.join(sizes)} |"
    yield f"|---|---|{'---|' * len(sizes)}"
    for kind, asked in kinds:
        for method in options.methods.split(","):
            found = [bench.measured(what, method) for what in asked]
            cells = [f"{one['model']['loss'] - base:+.4f}" for one in found]
            for size, one in zip(sizes, found, strict=True):
                caches[size] = one["cache_bytes"]["measured"]
            row = f"| {kind} | `{method}` | {' | '.join(cells)} |"
            print(row, file=sys.stderr, flush=True)
            yield row


def header(
    options: argparse.Namespace, texts: Sequence[str], document: dict[str, Any], after: str
) -> str:
    """The line above a table: what its figures are figures of."""
    settings, before = document["settings"], document["cache_bytes"]["measured"]
    return (
        f"Model: {model_in_words(options.model)}."
        f" Text: {text_in_words(f'the second half of {options.text.name}', texts[1])}, loss"
        f" {document['model']['loss']:.4f} before."
        f" Tokens: {document['model']['tokens']:,} scored, {windows_in_words(settings)};"
        f" at most {options.calibration_tokens:,} of {text_in_words('the first half', texts[0])} to"
        f" calibrate. Seed: {options.seed}. Measured: {measured_in_words(settings)}."
        f" Cache as measured: {before / 2**10:,.0f} KiB, then {after}. Figures: nats a token added."
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="1/2,1/4,1/8")
    parser.add_argument("--homes", default="latent", help="latent, mla or both")
    parser.add_argument("--merged", metavar="4,2,1", help="K/V heads of as many bytes")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--tokens", type=int, default=16384, help="scored at most")
    parser.add_argument("--calibration-tokens", type=int, default=32768)
    parser.add_argument("--window", type=int, help="default: evaluate's")
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
        caches: dict[str, int] = {}
        table = list(rows(bench, before["model"]["loss"], caches))
    after = ", ".join(f"{size / 2**10:,.0f} KiB ({name})" for name, size in caches.items())
    above = header(options, texts, before, after)
    methods = options.methods.split(",")
    first = f"--latent {options.sizes.split(',')[0]} --home {options.homes.split(',')[0]}"
    commands = [bench.convert(first, method) for method in methods]
    commands.append(bench.evaluate("out"))
    print("\n".join(block("latent.py", above, table, commands)), flush=True)


if __name__ == "__main__":
    main()
