"""Peak memory and time of a conversion, on a made checkpoint in 1, 10 and 40 shards.

    python bench/convert.py [--folder FOLDER] [--runs 3]

Makes a Llama of 2.7 GB (bfloat16, 24 layers, 16 heads), converts it to 4 K/V heads in a child
process, and copies the same folder with `cp -r` and fsync, taking turns. Prints, per number of
shards: the child's peak resident memory above that of a child that only imports the converter, and
the median time of conversions over the median time of copies. Needs 9 GB of disk.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

HIDDEN, HEADS, HEAD_DIM, MLP, VOCABULARY, LAYERS, KV_HEADS = 2048, 16, 128, 5632, 32000, 24, 4
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
CHILD = """
import sys, time
from pathlib import Path
from headcount.convert.conversion import convert
from headcount.convert.plan.request import ConversionRequest
if len(sys.argv) > 1:
    source, target, kv = sys.argv[1:]
    request = ConversionRequest(
        source=Path(source), target=Path(target), num_key_value_heads=int(kv)
    )
    start = time.perf_counter()
    convert(request, progress=False)
    print(time.perf_counter() - start)
"""


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


def run_child(*arguments: str) -> tuple[str, int]:
    """What the child printed, and its peak resident memory in bytes."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the conversion failed with status {status}")
    return output, peak_bytes(usage)


def peak_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def timed_copy(source: Path, target: Path) -> float:
    """Seconds of `cp -r` and of fsync on every file and on the folder."""
    start = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)
    for path in [*target.iterdir(), target]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - start


def measure(source: Path, target: Path, runs: int) -> tuple[list[float], list[float], int]:
    """Seconds of conversions and copies, taking turns, and the highest peak of the former."""
    converted, copied, peak = [], [], 0
    for _ in range(runs):
        os.sync()
        seconds, child_peak = run_child(str(source), str(target), str(KV_HEADS))
        converted.append(float(seconds))
        peak = max(peak, child_peak)
        shutil.rmtree(target)
        os.sync()
        copied.append(timed_copy(source, target))
        shutil.rmtree(target)
    return converted, copied, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one if not given")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    _, baseline = run_child()
    size = sum(nbytes(shape) for _, shape in tensors())
    print(
        f"checkpoint {size / 1e9:.2f} GB; importing the converter takes {baseline / 2**20:.0f} MiB"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for shards in (1, 10, 40):
            source = Path(folder) / f"made-{shards}"
            make(source, shards)
            converted, copied, peak = measure(source, Path(folder) / "out", options.runs)
            shutil.rmtree(source)
            ratio = statistics.median(converted) / statistics.median(copied)
            print(
                f"{shards:>2} shards: peak {(peak - baseline) / 2**20:.0f} MiB above the import;"
                f" {ratio:.2f} x the time of cp -r + fsync"
                f" ({min(converted):.1f}-{max(converted):.1f} s"
                f" against {min(copied):.1f}-{max(copied):.1f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
