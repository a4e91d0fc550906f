"""What fewer K/V heads cost a model by each method, as the Markdown that the docs hold.

    python bench/quality.py --model NAME=FOLDER --text NAME=FILE --kv-heads 4,2,1

Cuts the text into halves at a line break: the first calibrates, the second is scored. Instead of
a file, `--written 120000` lets the model write so many tokens, by the seed, which is text of its
own kind where none is at hand; `--calibration NAME=FILE` calibrates with another text, and scores
the second half all the same. Everything that is measured is measured by one `headcount convert
--sweep`, which is printed below the table. `first.txt` and `second.txt` there are the halves.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headcount.convert.merge.ladder import QUALITIES, WITH_TEXT
from headcount.running.text import Text
from headcount.running.tokens import encode
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

METHODS = "mean,first,medoid,random,renorm,align,merge,fast,fast+text,good,best"
# Sequences that a model writes at a time, and the longest of them in tokens.
WRITERS, LONGEST = 64, 512


@torch.no_grad()
def written(folder: Path, tokens: int, seed: int) -> str:
    """About so many tokens that the model itself writes, drawn from all that it predicts: rows
    that begin with BOS, or any token where there is none, each up to the end that it gives."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    length = min(model.config.max_position_embeddings, LONGEST)
    start = torch.randint(len(tokenizer), (WRITERS, 1))
    if encode(tokenizer, Text(name="", content="a b c d", sha256=""), 2).bos:
        start = torch.full_like(start, tokenizer.bos_token_id)
    texts: list[str] = []
    for _ in range(-(-tokens // (WRITERS * length))):
        rows = model.generate(
            start,
            attention_mask=torch.ones_like(start),
            do_sample=True,
            top_k=0,
            max_length=length,
            pad_token_id=0,
        )
        texts += tokenizer.batch_decode(rows, skip_special_tokens=True)
    return "\n".join(text.strip() for text in texts)


def cell(trial: dict[str, Any], mean: float | None) -> str:
    """Loss added, and the part of the mean's that it is, where it is less."""
    added = trial["delta_loss"]
    ratio = 0.0 if mean is None or added <= 0 else mean / added
    if ratio < 1.05:
        return f"{added:+.3f}"
    return f"{added:+.3f} (1/{ratio:.0f})" if ratio >= 10 else f"{added:+.3f} (1/{ratio:.1f})"


def rows(document: dict[str, Any]) -> Iterator[str]:
    """A line a method, two columns a number of K/V heads."""
    trials = {(t["method"], t["num_key_value_heads"]): t for t in document["trials"]}
    methods = list(dict.fromkeys(method for method, _ in trials))
    counts = list(dict.fromkeys(count for _, count in trials))
    before = document["original"]["num_key_value_heads"]
    heads = " | ".join(f"{before} → {count}: loss | KL" for count in counts)
    yield f"| method | reads | {heads} |"
    yield f"|---|---|{'---|---|' * len(counts)}"
    for method in methods:
        cells = [
            f"{cell(trial, trials.get(('mean', count), {}).get('delta_loss'))} |"
            f" {trial['kl_divergence']:.3f}"
            for count in counts
            for trial in [trials[method, count]]
        ]
        reads = "text" if trials[method, counts[0]]["calibrated"] else "weights"
        yield f"| `{method}` | {reads} | {' | '.join(cells)} |"


def caches(document: dict[str, Any]) -> str:
    """Measured bytes of one sequence, before and by number of K/V heads."""
    trials = {t["num_key_value_heads"]: t["cache_bytes"] for t in document["trials"]}
    original = document["original"]
    after = ", ".join(f"{size / 2**10:,.0f} KiB ({count})" for count, size in trials.items())
    return (
        f"Cache of {original['cache_tokens']:,} tokens: {original['cache_bytes'] / 2**10:,.0f} KiB,"
        f" then {after}."
    )


def reads_text(methods: str) -> bool:
    """Whether one of the methods of a sweep does."""
    needing = [name for name, ladder in QUALITIES.items() if ladder.needs_text]
    return any(name in needing or name.endswith(WITH_TEXT) for name in methods.split(","))


def calibrated(options: argparse.Namespace, text: str) -> str:
    """How much of what the methods that read text have read."""
    if not reads_text(options.methods):
        return "no method reads text"
    first = options.calibration.name if options.calibration else "the first half"
    return f"at most {options.calibration_tokens:,} of {text_in_words(first, text)} to calibrate"


def header(options: argparse.Namespace, document: dict[str, Any], first: str, second: str) -> str:
    """The line above a table: what its figures are figures of."""
    own = f"{options.written} tokens of {options.model.name}'s own writing"
    kind = options.text.name if options.text else own
    settings = document["settings"]
    return (
        f"Model: {model_in_words(options.model)}."
        f" Text: {text_in_words(f'the second half of {kind}', second)}, loss"
        f" {document['original']['loss']:.3f} before."
        f" Tokens: {document['tokens']:,} scored, {windows_in_words(settings)};"
        f" {calibrated(options, first)}. Seed: {options.seed}."
        f" Measured: {measured_in_words(settings)}. {caches(document)}"
    )


def command(options: argparse.Namespace) -> str:
    """The sweep, as one types it beside the model and the halves of its text."""
    line = f"convert {options.model.name} --sweep {options.kv_heads}"
    line += f" --sweep-methods {options.methods}"
    if reads_text(options.methods):
        tokens = options.calibration_tokens
        line += f" --calibration first.txt --calibration-tokens {tokens}"
    line += f" --text second.txt --max-tokens {options.tokens} --seed {options.seed}"
    return line + (f" --window {options.window}" if options.window else "")


def texts(options: argparse.Namespace) -> tuple[str, str]:
    """What calibrates, and what is scored."""
    if options.text:
        text = options.text.path.read_text("utf-8")
    else:
        text = written(options.model.path, options.written, options.seed)
    first, second = halves(text)
    return options.calibration.path.read_text("utf-8") if options.calibration else first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=named, required=True, metavar="NAME=FOLDER")
    parser.add_argument("--text", type=named, metavar="NAME=FILE")
    parser.add_argument("--written", type=int, metavar="TOKENS", help="in place of --text")
    parser.add_argument("--calibration", type=named, metavar="NAME=FILE")
    parser.add_argument("--kv-heads", required=True, metavar="4,2,1")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--tokens", type=int, default=16384, help="scored at most")
    parser.add_argument("--calibration-tokens", type=int, default=32768)
    parser.add_argument("--window", type=int, help="default: evaluate's")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if (options.text is None) == (options.written is None):
        parser.error("give one of --text and --written")
    torch.set_num_threads(1)
    first, second = texts(options)
    with tempfile.TemporaryDirectory() as folder:
        places = {options.model.name: options.model.path}
        for name, content in (("first.txt", first), ("second.txt", second)):
            places[name] = Path(folder, name)
            places[name].write_text(content, "utf-8")
        document = headcount(command(options), places)
    above = header(options, document, first, second)
    print("\n".join(block("quality.py", above, rows(document), [command(options)])), flush=True)


if __name__ == "__main__":
    main()
