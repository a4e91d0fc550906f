"""Time, CPU time and peak memory of a conversion, on a made checkpoint in 1, 10 and 40 shards.

    python bench/convert.py [--folder FOLDER] [--runs 3] [--shards 10] [--workers 2]

Makes a Llama of 4.4 GB (bfloat16, 40 layers, 16 heads) and converts it to 4 K/V heads in a child
process. Taking turns with that: `cp -r` and fsync of what the conversion wrote, so of the same
bytes, and a child that loads the model with transformers, pools K and V and calls save_pretrained,
followed by fsync. Reads come from the page cache in all three. Prints medians, the ratios of wall
times, and peak resident memory above that of a child that only imports torch. Needs 14 GB of disk.
"""

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

HIDDEN, HEADS, HEAD_DIM, MLP, VOCABULARY, LAYERS, KV_HEADS = 2048, 16, 128, 5632, 32000, 40, 4
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}
CONVERT = """
import sys, time
from pathlib import Path
from headcount.convert.conversion import convert
from headcount.convert.plan.request import ConversionRequest
source, target, kv, workers = sys.argv[1:]
request = ConversionRequest(
    source=Path(source), target=Path(target), num_key_value_heads=int(kv), workers=int(workers)
)
start = time.perf_counter()
convert(request, progress=False)
print(time.perf_counter() - start)
"""
# The usual way: the whole model in memory. Each projection is replaced by the mean of its groups.
LOAD_AND_SAVE = """
import sys, time
import torch
from transformers import AutoModelForCausalLM
source, target, kv, shard = sys.argv[1:]
AutoModelForCausalLM.from_config  # imports are not timed, as above they are not
from transformers.models.llama import modeling_llama
start = time.perf_counter()
model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
model.config.num_key_value_heads = int(kv)
for layer in model.model.layers:
    for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
        heads = projection.weight.data.view(int(kv), -1, layer.self_attn.head_dim, 2048)
        projection.weight.data = heads.float().mean(1).flatten(0, 1).to(projection.weight.dtype)
        projection.out_features = len(projection.weight)
model.save_pretrained(target, max_shard_size=int(shard))
print(time.perf_counter() - start)
"""
TORCH = "import torch"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one run: seconds on the clock, of all processors together, and peak resident bytes."""

    wall: float
    cpu: float
    peak: int


def tensors() -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of the made model."""
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        for part in "qkvo":
            yield f"{layer}.self_attn.{part}_proj.weight", [HIDDEN, HIDDEN]
        yield f"{layer}.mlp.gate_proj.weight", [MLP, HIDDEN]
        yield f"{layer}.mlp.up_proj.weight", [MLP, HIDDEN]
        yield f"{layer}.mlp.down_proj.weight", [HIDDEN, MLP]
        yield f"{layer}.input_layernorm.weight", [HIDDEN]
        yield f"{layer}.post_attention_layernorm.weight", [HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]


def nbytes(shape: list[int]) -> int:
    count = 2
    for size in shape:
        count *= size
    return count


def split(shards: int) -> list[list[tuple[str, list[int]]]]:
    """The tensors in runs of about equal bytes."""
    everything = list(tensors())
    total = sum(nbytes(shape) for _, shape in everything)
    runs: list[list[tuple[str, list[int]]]] = [[] for _ in range(shards)]
    done = 0
    for name, shape in everything:
        runs[min(done * shards // total, shards - 1)].append((name, shape))
        done += nbytes(shape)
    return [run for run in runs if run]


def make(folder: Path, shards: int) -> None:
    """Writes the checkpoint; its values are one block of normal numbers, again and again."""
    folder.mkdir()
    block = torch.randn(2**22).bfloat16().view(torch.uint8).numpy().tobytes()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    runs = split(shards)
    names = (
        ["model.safetensors"]
        if shards == 1
        else [f"model-{i + 1:05}-of-{len(runs):05}.safetensors" for i in range(len(runs))]
    )
    weight_map = {}
    for file, run in zip(names, runs, strict=True):
        write(folder / file, run, block)
        weight_map.update({name: file for name, _ in run})
    if shards > 1:
        total = sum(nbytes(shape) for _, shape in tensors())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write(path: Path, run: list[tuple[str, list[int]]], block: bytes) -> None:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape in run:
        end = position + nbytes(shape)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while position > 0:
            file.write(block[:position])
            position -= len(block)


def run_child(script: str, *arguments: object) -> tuple[str, Cost]:
    """What the child printed, and what it took."""
    return run([sys.executable, "-c", script, *map(str, arguments)])


def run(command: list[str]) -> tuple[str, Cost]:
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{command[:3]} failed with status {status}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    wall = time.perf_counter() - start
    return output, Cost(wall=wall, cpu=usage.ru_utime + usage.ru_stime, peak=peak)


def convert(source: Path, target: Path, workers: int) -> Cost:
    printed, cost = run_child(CONVERT, source, target, KV_HEADS, workers)
    return replace(cost, wall=float(printed))


def copy(source: Path, target: Path) -> Cost:
    """`cp -r`, then fsync of every file and of the folder."""
    _, cost = run(["cp", "-r", str(source), str(target)])
    return replace(cost, wall=cost.wall + sync(target))


def load_and_save(source: Path, target: Path, shards: int) -> Cost:
    size = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    printed, cost = run_child(LOAD_AND_SAVE, source, target, KV_HEADS, size // shards)
    return replace(cost, wall=float(printed) + sync(target))


def sync(folder: Path) -> float:
    start = time.perf_counter()
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - start


def warm(folder: Path) -> None:
    """Into the page cache, and nothing left to write from before."""
    os.sync()
    for path in folder.iterdir():
        with path.open("rb") as file:
            while file.read(2**24):
                pass


def measure(
    source: Path, folder: Path, shards: int, options: argparse.Namespace
) -> dict[str, list[Cost]]:
    """Runs of each kind, taking turns."""
    costs: dict[str, list[Cost]] = {"convert": [], "copy": [], "load and save": []}
    out, copied = folder / "out", folder / "copied"
    for _ in range(options.runs):
        warm(source)
        costs["convert"].append(convert(source, out, options.workers))
        warm(out)
        costs["copy"].append(copy(out, copied))
        shutil.rmtree(out)
        shutil.rmtree(copied)
        if not options.no_load:
            warm(source)
            costs["load and save"].append(load_and_save(source, out, shards))
            shutil.rmtree(out)
    return costs


def report(shards: int, costs: dict[str, list[Cost]], imported: Cost) -> None:
    """Processor time and memory of importing torch are left out; cp has none."""
    median = {
        kind: statistics.median(cost.wall for cost in runs) for kind, runs in costs.items() if runs
    }
    for kind, runs in costs.items():
        if not runs:
            continue
        walls = " ".join(f"{cost.wall:.1f}" for cost in runs)
        less = Cost(wall=0, cpu=0, peak=0) if kind == "copy" else imported
        peak = max(cost.peak for cost in runs) - less.peak
        print(
            f"{shards:>2} shards, {kind:<13}: {median[kind]:6.1f} s ({walls}),"
            f" CPU {statistics.median(cost.cpu for cost in runs) - less.cpu:5.1f} s,"
            f" peak {peak / 2**20:6.0f} MiB,"
            f" {median[kind] / median['convert']:.2f} x the conversion",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one if not given")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 10, 40])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-load", action="store_true", help="without load and save")
    options = parser.parse_args()
    _, imported = run_child(TORCH)
    sizes = [nbytes(shape) for _, shape in tensors()]
    print(
        f"checkpoint {sum(sizes) / 1e9:.2f} GB, largest tensor {max(sizes) / 2**20:.0f} MiB;"
        f" importing torch takes {imported.peak / 2**20:.0f} MiB and {imported.cpu:.1f} s"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for shards in options.shards:
            source = Path(folder) / f"made-{shards}"
            make(source, shards)
            report(shards, measure(source, Path(folder), shards, options), imported)
            shutil.rmtree(source)


if __name__ == "__main__":
    main()
