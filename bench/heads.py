"""What an atlas of heads costs: forward passes, time, and peak memory beside that of loading.

    python bench/heads.py FOLDER [--tokens 64] [--sequences 16] [--batch-size 4]
    python bench/heads.py --layers 1,4,16 [--tokens 250] [--sequences 16] [--batch-size 8]

The second makes random Llamas (8 heads of 32, vocabulary 1,024, seed 0) with so many layers, and
prints a table: if patterns of all layers were kept, the peak would grow with their number.

Each run is a process of its own. Prints the passes and tokens of an atlas, its time without
loading, the peak of resident memory above that of loading the model, what one layer's patterns of
a batch and the patterns of all layers take, and the time of the same passes without patterns.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ATLAS = """
import json, resource, sys, time
from pathlib import Path
from headcount.heads.atlas_plan import plan_atlas
from headcount.heads.atlas_run import atlas_of
from headcount.heads.heads_request import HeadsRequest
from headcount.running.boundary import quiet_transformers, run_model
from headcount.running.load import load_model
import torch
folder, tokens, sequences, batch, what = sys.argv[1:]
request = HeadsRequest(
    model=folder, tokens=int(tokens), sequences=int(sequences), batch_size=int(batch)
)
with quiet_transformers():
    plan = plan_atlas(request, Path(folder), folder)
    attention = "eager" if what == "atlas" else None
    loaded = load_model(plan.runnable, dtype=plan.dtype, place=plan.place, attention=attention)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, start = peak(), time.perf_counter()
found = {}
if what == "atlas":
    atlas = atlas_of(plan, loaded)
    heads = [one.num_attention_heads for one in plan.attentions]
    found = {
        "forward_passes": atlas.cost.forward_passes,
        "tokens": atlas.cost.tokens,
        "length": atlas.settings.sequence_length,
        "heads": heads,
    }
else:
    with torch.inference_mode():
        for ids in plan.sequences.batches(plan.request.batch_size):
            run_model(loaded.model, input_ids=ids, use_cache=False)
seconds = time.perf_counter() - start
print(json.dumps({**found, "seconds": seconds, "before": before, "peak": peak()}))
"""


def run(arguments: Sequence[str]) -> dict[str, Any]:
    made = subprocess.run(
        [sys.executable, "-c", ATLAS, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def random_llama(folder: Path, layers: int) -> None:
    """Saves one; small, so that patterns are most of what is in memory."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers,
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_attention_heads=8,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def measured(settings: Sequence[str]) -> dict[str, float]:
    """What an atlas takes: seconds, and bytes in MiB."""
    atlas, plain = run([*settings, "atlas"]), run([*settings, "plain"])
    # float32, and of a last batch as many sequences as of the others
    one = 4 * int(settings[-1]) * atlas["length"] ** 2 / 2**20
    return {
        "forward_passes": atlas["forward_passes"],
        "tokens": atlas["tokens"],
        "seconds": atlas["seconds"],
        "alone": plain["seconds"],
        "peak": (atlas["peak"] - atlas["before"]) / 1024,
        "peak_alone": (plain["peak"] - plain["before"]) / 1024,
        "pattern": max(atlas["heads"]) * one,
        "patterns": sum(atlas["heads"]) * one,
    }


def by_layers(counts: Sequence[int], settings: Sequence[str]) -> None:
    """A table with a row a number of layers."""
    titles = ("layers", "passes", "time (the passes alone)", "peak above loading (the same)")
    print(f"| {' | '.join(titles)} | to the first | patterns of a layer | of all layers |")
    print(f"|{'---|' * 7}")
    first = 0.0
    for layers in counts:
        with tempfile.TemporaryDirectory() as folder:
            random_llama(Path(folder), layers)
            found = measured([folder, *settings])
        first = first or found["peak"]
        print(
            f"| {layers} | {found['forward_passes']} | {found['seconds']:.1f} s"
            f" ({found['alone']:.1f} s) | {found['peak']:.0f} MiB ({found['peak_alone']:.0f} MiB)"
            f" | {found['peak'] / first:.2f} | {found['pattern']:.0f} MiB"
            f" | {found['patterns']:.0f} MiB |",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--layers", help="of random models, in place of a folder: 1,4,16")
    parser.add_argument("--tokens", default="64")
    parser.add_argument("--sequences", default="16")
    parser.add_argument("--batch-size", default="4")
    given = parser.parse_args()
    if (given.folder is None) == (given.layers is None):
        parser.error("give one of FOLDER and --layers")
    settings = [given.tokens, given.sequences, given.batch_size]
    if given.layers is not None:
        by_layers([int(count) for count in given.layers.split(",")], settings)
        return 0
    found = measured([str(given.folder), *settings])
    print(f"forward passes       {found['forward_passes']:,} ({found['tokens']:,} tokens)")
    print(f"atlas                {found['seconds']:.2f} s")
    print(f"the passes alone     {found['alone']:.2f} s")
    print(f"peak above loading   {found['peak']:.1f} MiB")
    print(f"of the passes alone  {found['peak_alone']:.1f} MiB")
    print(f"one layer's patterns {found['pattern']:.1f} MiB")
    print(f"those of all layers  {found['patterns']:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
