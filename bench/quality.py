"""What fewer K/V heads cost a model by each method, as the Markdown that the docs hold.

    python bench/quality.py --model NAME=FOLDER --text NAME=FILE --kv-heads 4,2,1

Cuts the text into halves at a line break: the first calibrates, the second is scored. Instead of
a file, `--written 120000` lets the model write so many tokens, by the seed, which is text of its
own kind where none is at hand; `--calibration NAME=FILE` calibrates with another text, and scores
the second half all the same. Everything that is measured is measured by one `headcount convert
--sweep`, which is printed below the table. `first.txt` and `second.txt` there are the halves.
"""

import argparse
import datetime
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headcount import __version__
from headcount.convert.merge.ladder import QUALITIES, WITH_TEXT

METHODS = "mean,first,medoid,random,renorm,align,merge,fast,fast+text,good,best"
# Sequences that a model writes at a time, and the longest of them in tokens.
WRITERS, LONGEST = 64, 512


@dataclass(frozen=True, kw_only=True)
class Named:
    """A file or folder, and what it is called where it is published."""

    name: str
    path: Path


def named(text: str) -> Named:
    """NAME=PATH, so that no place of this machine gets into a table."""
    name, is_there, path = text.partition("=")
    if not (name and is_there and path):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=PATH")
    return Named(name=name, path=Path(path))


def headcount(*arguments: object) -> dict[str, Any]:
    """What the command says, as data; it ends the run if the command fails."""
    command = [sys.executable, "-m", "headcount", *map(str, arguments), "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"headcount {arguments[0]} failed with status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def halves(content: str) -> tuple[str, str]:
    """Of a text, cut behind the first line break in its second half."""
    middle = content.find("\n", len(content) // 2) + 1 or len(content) // 2
    return content[:middle], content[middle:]


@torch.no_grad()
def written(folder: Path, tokens: int, seed: int) -> str:
    """About so many tokens that the model itself writes, drawn from all that it predicts: rows
    that begin with BOS, or any token where there is none, each up to the end that it gives."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    length = min(model.config.max_position_embeddings, LONGEST)
    start = torch.randint(len(tokenizer), (WRITERS, 1))
    if tokenizer.bos_token_id is not None:
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


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def model_in_words(model: Named) -> str:
    """Its class, size and heads, as the audit reads them."""
    audit = headcount("audit", model.path)
    layers = [mixer for layer in audit["layers"] for mixer in layer["mixers"]]
    first = layers[0]
    millions = audit["totals"]["parameters"] / 1e6
    return (
        f"{model.name} ({audit['model']['model_type']}, {millions:.3g} M parameters,"
        f" {len(layers)} layers, {first['num_attention_heads']} query and"
        f" {first['num_key_value_heads']} K/V heads of {first['head_dim']})"
    )


def swept(model: Named, folder: Path, arguments: list[str]) -> tuple[dict[str, Any], str]:
    """The sweep's document, and the command as one types it beside the model and the texts."""
    placed = [str(folder / word) if word.endswith(".txt") else word for word in arguments]
    document = headcount("convert", model.path, *placed)
    return document, f"headcount convert ./{model.name} {' '.join(arguments)}"


def cell(trial: dict[str, Any], mean: float | None) -> str:
    """Loss added, and the part of the mean's that it is."""
    added = trial["delta_loss"]
    if mean is None or added <= 0 or trial["method"] == "mean":
        return f"{added:+.3f}"
    ratio = mean / added
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
        f"cache of {original['cache_tokens']:,} tokens"
        f" {original['cache_bytes'] / 2**10:,.0f} KiB, then {after}"
    )


def calibrated(options: argparse.Namespace, text: str) -> str:
    """How much of what the methods that read text have read."""
    if not reads_text(options.methods):
        return "no method reads text"
    first = options.calibration.name if options.calibration else "the first half"
    most = f"at most {options.calibration_tokens:,} tokens of {first}"
    return f"{most} (sha256 {digest(text)}) to calibrate"


def reads_text(methods: str) -> bool:
    """Whether one of the methods of a sweep does."""
    needing = [name for name, ladder in QUALITIES.items() if ladder.needs_text]
    return any(name in needing or name.endswith(WITH_TEXT) for name in methods.split(","))


def describe(options: argparse.Namespace, document: dict[str, Any], texts: dict[str, str]) -> str:
    """The line above a table: what its figures are figures of."""
    scored = texts["second"]
    kind = options.text.name if options.text else f"{options.model.name}'s own writing"
    text = f"the second half of {kind} (sha256 {digest(scored)})"
    settings = document["settings"]
    window = f"windows of {settings['window']} by {settings['stride']}"
    window += ", each after BOS" if settings["bos"] else ", without BOS"
    versions = f"headcount {__version__}, torch {settings['torch']}"
    today = datetime.date.today().isoformat()
    return (
        f"Model: {model_in_words(options.model)}. Text: {text}, loss"
        f" {document['original']['loss']:.3f} before. Tokens: {document['tokens']:,} scored,"
        f" {window}; {calibrated(options, texts['first'])}."
        f" Seed: {options.seed}. Measured: {today}, {versions}; {caches(document)}."
    )


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
    print(table(options), flush=True)


def table(options: argparse.Namespace) -> str:
    """Measures, and gives the block of Markdown with its marks."""
    text = (
        options.text.path.read_text("utf-8")
        if options.text
        else written(options.model.path, options.written, options.seed)
    )
    first, second = halves(text)
    if options.calibration:
        first = options.calibration.path.read_text("utf-8")
    arguments = ["--sweep", options.kv_heads, "--sweep-methods", options.methods]
    if reads_text(options.methods):
        arguments += ["--calibration", "first.txt", "--calibration-tokens"]
        arguments += [str(options.calibration_tokens)]
    arguments += ["--text", "second.txt"]
    arguments += ["--max-tokens", str(options.tokens), "--seed", str(options.seed)]
    arguments += ["--window", str(options.window)] if options.window else []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "first.txt").write_text(first, "utf-8")
        Path(folder, "second.txt").write_text(second, "utf-8")
        document, command = swept(options.model, Path(folder), arguments)
    header = describe(options, document, {"first": first, "second": second})
    key = f"quality of {options.model.name}"
    lines = [f"<!-- {key}: made by bench/quality.py -->", header, "", *rows(document), ""]
    return "\n".join([*lines, f"    {command}", f"<!-- end of {key} -->"])


if __name__ == "__main__":
    main()
