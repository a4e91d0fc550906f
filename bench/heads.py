"""What an atlas of heads costs: forward passes, time, and peak memory beside that of loading.

    python bench/heads.py FOLDER [--tokens 64] [--sequences 16] [--batch-size 4]

Each run is a process of its own. Prints the passes and tokens of an atlas, its time without
loading, the peak of resident memory above that of loading the model, what one layer's patterns of
a batch and the patterns of all layers take, and the time of the same passes without patterns.
"""

import argparse
import json
import subprocess
import sys
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
    loaded = load_model(plan.runnable, dtype=plan.dtype, device=plan.device, attention=attention)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", default="64")
    parser.add_argument("--sequences", default="16")
    parser.add_argument("--batch-size", default="4")
    given = parser.parse_args()
    settings = [str(given.folder), given.tokens, given.sequences, given.batch_size]
    atlas, plain = run([*settings, "atlas"]), run([*settings, "plain"])
    # float32, and of a last batch as many sequences as of the others
    one = 4 * int(given.batch_size) * atlas["length"] ** 2
    print(f"forward passes       {atlas['forward_passes']:,} ({atlas['tokens']:,} tokens)")
    print(f"atlas                {atlas['seconds']:.2f} s")
    print(f"the passes alone     {plain['seconds']:.2f} s")
    print(f"peak above loading   {(atlas['peak'] - atlas['before']) / 1024:.1f} MiB")
    print(f"of the passes alone  {(plain['peak'] - plain['before']) / 1024:.1f} MiB")
    print(f"one layer's patterns {max(atlas['heads']) * one / 2**20:.1f} MiB")
    print(f"those of all layers  {sum(atlas['heads']) * one / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
