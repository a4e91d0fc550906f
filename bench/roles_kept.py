"""What fewer K/V heads do to what the heads are for, by method, as the Markdown that the docs hold.

    python bench/roles_kept.py --model NAME=FOLDER --text NAME=FILE --kv-heads 4,2

Cuts the text into halves at a line break: the first calibrates, the second is scored. Each cell is
one `headcount convert --evaluate`, then `headcount heads OUT --against MODEL` for the roles, and
two losses that are measured here with transformers alone: of random tokens that are read a second
time (the induction loss, Olsson et al. 2022), and of passages of the second half that are.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

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

METHODS = "mean,fast,good,best"
READS_TEXT = ("good", "best")
# Tokens of a copy, and how many sequences of two copies are scored.
COPY, SEQUENCES, PASSAGES = 64, 64, 32


class Copies(NamedTuple):
    """Mean loss, in nats a token, of tokens that are read for the first time and again."""

    first: float
    again: float


@torch.no_grad()
def copies_of(model: Any, ids: Tensor) -> Copies:
    """Of `ids` [rows, tokens], each row twice; but for the first token of either copy, which
    nothing tells."""
    logits = torch.cat([model(input_ids=torch.cat([row, row], 1)).logits for row in ids.split(8)])
    targets = torch.cat([ids, ids], dim=1)[:, 1:]
    losses = -logits[:, :-1].float().log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    width = ids.shape[1]
    return Copies(losses[:, : width - 1].mean().item(), losses[:, width:].mean().item())


class Bench:
    """One model and one text."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        first, self.second = halves(options.text.path.read_text("utf-8"))
        self.first = first
        self.places = {options.model.name: options.model.path, "out": folder / "out"}
        for name, content in (("first.txt", first), ("second.txt", self.second)):
            self.places[name] = folder / name
            self.places[name].write_text(content, "utf-8")
        self.random, self.passages = self.drawn()
        self.evaluation: dict[str, Any] = {}
        self.heads: dict[str, Any] = {}

    def drawn(self) -> tuple[Tensor, Tensor]:
        """Random tokens, each once in a row, and passages from all over the second half."""
        tokenizer = AutoTokenizer.from_pretrained(self.options.model.path)
        special = set(tokenizer.all_special_ids)
        usable = torch.tensor([i for i in range(len(tokenizer)) if i not in special])
        generator = torch.Generator().manual_seed(self.options.seed)
        rows = [torch.randperm(len(usable), generator=generator) for _ in range(SEQUENCES)]
        ids = torch.tensor(tokenizer(self.second, add_special_tokens=False)["input_ids"])
        starts = range(0, len(ids) - COPY, (len(ids) - COPY) // PASSAGES)
        passages = torch.stack([ids[start : start + COPY] for start in starts][:PASSAGES])
        return usable[torch.stack(rows)[:, :COPY]], passages

    def losses(self, folder: Path) -> tuple[Copies, Copies]:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return copies_of(model, self.random), copies_of(model, self.passages)

    def commands(self, method: str, count: str) -> tuple[str, str]:
        options = self.options
        quality = "" if method == "mean" else f" --quality {method}"
        if method in READS_TEXT:
            tokens = options.calibration_tokens
            quality += f" --calibration first.txt --calibration-tokens {tokens}"
        return (
            f"convert {options.model.name} out --kv-heads {count}{quality} --evaluate --text"
            f" second.txt --max-tokens {options.tokens} --no-speed --no-roles --behaviour none"
            " --overwrite",
            f"heads out --against {options.model.name} --seed {options.seed}",
        )

    def rows(self) -> Iterator[str]:
        """The model, and a line a method and number of K/V heads."""
        yield (
            "| K/V heads | method | loss added | induction heads kept | their score"
            " | previous-token heads kept | their score | induction loss | passages, second copy |"
        )
        yield f"|{'---|' * 9}"
        lines = [
            self.line(count, method)
            for count in self.options.kv_heads.split(",")
            for method in self.options.methods.split(",")
        ]
        random, passages = self.losses(self.options.model.path)
        roles = [self.before(role) for role in ("induction", "previous_token")]
        yield (
            f"| {self.counts()} | | | {' | '.join(roles)} | {random.again:.2f} of"
            f" {random.first:.2f} | {passages.again:.2f} of {passages.first:.2f} |"
        )
        yield from lines

    def counts(self) -> int:
        """K/V heads before."""
        before: int = self.heads["layers"][0]["num_key_value_heads"]["before"]
        return before

    def before(self, role: str) -> str:
        one = self.heads["roles"].get(role)
        return "none | " if one is None else f"{one['had']} | {one['score']['before']:.2f}"

    def line(self, count: str, method: str) -> str:
        convert, heads = self.commands(method, count)
        documents: Any = headcount(convert, self.places)  # the conversion's, the evaluation's
        self.evaluation, self.heads = documents[1], headcount(heads, self.places)
        random, passages = self.losses(self.places["out"])
        roles = [self.after(role) for role in ("induction", "previous_token")]
        line = (
            f"| {count} | `{method}` | {self.evaluation['delta_loss']:+.3f} | {' | '.join(roles)}"
            f" | {random.again:.2f} of {random.first:.2f}"
            f" | {passages.again:.2f} of {passages.first:.2f} |"
        )
        print(line, file=sys.stderr, flush=True)  # a table takes long: it can be watched
        return line

    def after(self, role: str) -> str:
        one = self.heads["roles"].get(role)
        if one is None:
            return "none | "
        more = f", {one['gained']} more" if one["gained"] else ""
        score = one["score"]["after"]
        return f"{one['kept']}{more} | {'' if score is None else f'{score:.2f}'}"

    def header(self) -> str:
        """The line above the table: what its figures are figures of."""
        options, settings = self.options, self.evaluation["settings"]
        looked = self.heads["settings"]
        return (
            f"Model: {model_in_words(options.model)}."
            f" Text: {text_in_words(f'the second half of {options.text.name}', self.second)}, loss"
            f" {self.evaluation['against']['loss']:.3f} before."
            f" Tokens: {self.evaluation['model']['tokens']:,} scored, {windows_in_words(settings)};"
            f" {text_in_words('the first half', self.first)} to calibrate, at most"
            f" {options.calibration_tokens:,} tokens; heads by {looked['sequences']} sequences of"
            f" {looked['tokens']} random tokens, twice; induction loss over {SEQUENCES} such"
            f" sequences of {COPY}, passages over {len(self.passages)} of {COPY}. Seed:"
            f" {options.seed}. Measured: {measured_in_words(settings)}."
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kv-heads", required=True, metavar="4,2")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--tokens", type=int, default=8192, help="scored at most")
    parser.add_argument("--calibration-tokens", type=int, default=16384)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        table = list(bench.rows())
        commands = bench.commands(options.methods.split(",")[-1], options.kv_heads.split(",")[0])
        print("\n".join(block("roles_kept.py", bench.header(), table, commands)), flush=True)


if __name__ == "__main__":
    main()
