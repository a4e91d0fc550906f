"""What a step takes with latents of a model whose keys do not rotate: time, and memory beside them.

    python bench/absorbed.py [--lengths 512,2048,8192] [--sizes 1/2,1/4,1/8] [--steps 5] [--seed 0]

Makes a GPT-2 of random weights in the shape of the smallest one, converts it by its weights alone,
and decodes one sequence behind a cache of so many tokens, whose content is random: on one thread,
each in a process of its own. `rebuilt` are the same latents where the class makes keys and values
of all tokens in every step, as it must where keys rotate. Milliseconds are those of the processor,
the median of the steps behind the first; memory is how far steps go beyond what was resident before
them, which is the model and its cache.
"""

import argparse
import datetime
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import transformers

from headcount import __version__

MAKE = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(int(sys.argv[2]))
GPT2LMHeadModel(GPT2Config(n_positions=int(sys.argv[3]))).save_pretrained(sys.argv[1])
"""
STEPS = """
import statistics, sys, time
import torch
from transformers import AutoModelForCausalLM, DynamicCache
import headcount.convert
from headcount.convert.models.modeling_headcount_latent import Latents
folder, way, tokens, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
torch.manual_seed(0)
if way == "rebuilt":
    Latents.look = lambda self, keys, values: None

def resident(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

model = AutoModelForCausalLM.from_pretrained(folder).eval()
with torch.no_grad():
    model(torch.tensor([[5]]))  # reads the weights
config, cache = model.config, DynamicCache()
for layer in range(config.n_layer):
    ranks = getattr(config, "latent_ranks", None)
    heads, width = (1, ranks[layer]) if ranks else (config.n_head, config.n_embd // config.n_head)
    keys = torch.randn(1, heads, tokens, width)
    cache.update(keys, keys[..., :0] if ranks else torch.randn_like(keys), layer)
took = []
with torch.no_grad():
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS")
    for _ in range(steps + 1):
        start = time.process_time()
        model(torch.tensor([[5]]), past_key_values=cache, use_cache=True)
        took.append(time.process_time() - start)
print(statistics.median(took[1:]) * 1000, resident("VmHWM") - before)
"""


class Step(NamedTuple):
    """Milliseconds, and MiB beyond what was there."""

    took: float
    beyond: float


def child(code: str, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def measured(folder: Path, way: str, length: int, steps: int) -> Step:
    took, beyond = child(STEPS, str(folder), way, str(length), str(steps)).split()
    return Step(took=float(took), beyond=float(beyond))


def converted(source: Path, sizes: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Name, folder and way of all that is measured."""
    yield "the source", source, "source"
    for number, size in enumerate(sizes):
        target = source.parent / f"latent{number}"
        call = ["convert", str(source), str(target), "--latent", size, "--quality", "fast"]
        subprocess.run(
            [sys.executable, "-m", "headcount", *call], check=True, stdout=subprocess.DEVNULL
        )
        yield f"latents, `{size}`", target, "absorbed"
        yield f"latents, `{size}`, rebuilt", target, "rebuilt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--sizes", default="1/2,1/4,1/8")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    print(
        "Model: GPT-2 of random weights (12 layers, 12 query and 12 K/V heads of 64, float32)."
        f" Tokens: {options.steps} steps behind {', '.join(f'{n:,}' for n in lengths)}."
        f" Seed: {options.seed}. Measured: {datetime.date.today().isoformat()}, headcount"
        f" {__version__}, torch {torch.__version__}, transformers {transformers.__version__}, cpu,"
        " one thread. Milliseconds of the processor a token,"
        " and MiB that steps take beside the cache.\n"
    )
    print(f"| cache | {' | '.join(f'{n:,} tokens' for n in lengths)} |")
    print(f"|---|{'---|' * len(lengths)}")
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "source")
        child(MAKE, str(source), str(options.seed), str(max(lengths) + options.steps + 1))
        for name, folder, way in converted(source, options.sizes.split(",")):
            found = [measured(folder, way, length, options.steps) for length in lengths]
            cells = " | ".join(f"{one.took:.0f} ms, {one.beyond:.0f} MiB" for one in found)
            print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
