"""What an uptraining heals, as the Markdown that docs/uptraining.md holds.

    python bench/uptrain.py --model NAME=FOLDER --text NAME=FILE --kv-heads 1

Cuts the text into halves as bench/quality.py does. The first calibrates a conversion by --quality
good and heals it; the second is only measured on. The commands are printed below the tables.
"""

import argparse
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

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

SHOWN = 10  # columns of losses


def commands(options: argparse.Namespace) -> list[str]:
    """What is run, in this order."""
    model, seed = options.model.name, f"--seed {options.seed}"
    scored = f"--against {model} --text second.txt --max-tokens {options.tokens} --no-speed"
    return [
        f"convert {model} converted --kv-heads {options.kv_heads} --quality good"
        f" --calibration first.txt --calibration-tokens {options.calibration_tokens} {seed}",
        f"uptrain converted --teacher {model} --text first.txt --output-dir healed"
        f" --steps {options.steps} --sequence-length {options.sequence_length} {seed}",
        f"evaluate converted {scored}",
        f"evaluate healed {scored}",
    ]


def scores(documents: list[dict[str, Any]], kv_heads: int) -> Iterator[str]:
    """A line a model: the original, its conversion, and that healed."""
    _, trained, converted, healed = documents
    yield "| model | loss | above the original | KL divergence | same first choice |"
    yield "|---|---|---|---|---|"
    yield f"| original | {converted['against']['loss']:.3f} | | | |"
    done = f"healed, {trained['steps']:,} steps, {trained['tokens']:,} tokens"
    for name, one in ((f"converted to {kv_heads}, `good`", converted), (done, healed)):
        yield (
            f"| {name} | {one['model']['loss']:.3f} | {one['delta_loss']:+.3f} |"
            f" {one['kl_divergence']:.3f} | {100 * one['top1_agreement']:.1f} % |"
        )


def losses(history: list[dict[str, Any]]) -> Iterator[str]:
    """Training losses, the mean of runs of steps of equal length."""
    run = max(1, len(history) // SHOWN)
    runs = [history[at : at + run] for at in range(0, len(history), run)]
    yield f"| up to step | {' | '.join(str(r[-1]['step']) for r in runs)} |"
    yield f"|---|{'---|' * len(runs)}"
    means = [mean(entry["loss"] for entry in r) for r in runs]
    yield f"| training loss | {' | '.join(f'{loss:.3f}' for loss in means)} |"


def header(
    options: argparse.Namespace, documents: list[dict[str, Any]], first: str, second: str
) -> str:
    """The line above the tables: what their figures are figures of."""
    _, _, converted, healed = documents
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    closed = 1 - healed["delta_loss"] / converted["delta_loss"]
    return (
        f"Model: {model_in_words(options.model)}."
        f" Text: {text_in_words(f'the second half of {options.text.name}', second)}."
        f" Tokens: {healed['model']['tokens']:,} scored, {windows_in_words(healed['settings'])};"
        f" {text_in_words('the first half', first)} calibrates and heals."
        f" Seed: {options.seed}. Measured: {measured_in_words(healed['settings'])}."
        f" Closed: {100 * closed:.0f} % of what the conversion had added. All commands take"
        f" {(used.ru_utime + used.ru_stime) / 60:.0f} minutes of processor time."
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kv-heads", type=int, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=16384, help="scored at most")
    parser.add_argument("--calibration-tokens", type=int, default=32768)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    first, second = halves(options.text.path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "first.txt").write_text(first, "utf-8")
        (folder / "second.txt").write_text(second, "utf-8")
        made = ("first.txt", "second.txt", "converted", "healed")
        places = {options.model.name: options.model.path, **{n: folder / n for n in made}}
        documents = [headcount(command, places) for command in commands(options)]
    above = header(options, documents, first, second)
    table = [*scores(documents, options.kv_heads), "", *losses(documents[1]["history"])]
    print("\n".join(block("uptrain.py", above, table, commands(options))), flush=True)


if __name__ == "__main__":
    main()
