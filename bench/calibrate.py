"""What calibrating takes: time in forward passes of its text, and memory by the number of layers.

    python bench/calibrate.py [--layers 6 24] [--hidden 512] [--tokens 16384] [--reconstruct 0]

Makes Llamas of random weights with as many K/V heads as heads, and in child processes runs the text
through each as transformers does by itself, and calibrates each to a quarter of its K/V heads with
refitted MLPs. Prints processor time of both, their ratio, and the peak of resident memory.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HEADS = 8
_COMMON = """
import resource, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from headcount.convert.plan.source import read_source
from headcount.convert.calibrate.calibration_text import calibration_text
from headcount.convert.calibrate.layered_model import LayeredModel
from headcount.convert.stream.reader import SourceReader
folder, tokens, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
source = read_source(folder)
"""
FORWARD = f"""{_COMMON}
from transformers import AutoModelForCausalLM
with SourceReader(source.checkpoint.files) as reader:
    layered = LayeredModel(source, reader)
    text = calibration_text(source, layered.runnable, "builtin", tokens, 0)
model = AutoModelForCausalLM.from_pretrained(folder)
with torch.no_grad():
    model(text.ids[text.batches[0]], use_cache=False)
    start = time.process_time()
    for batch in text.batches:
        model(text.ids[batch], use_cache=False)
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
CALIBRATE = f"""{_COMMON}
from headcount.convert.calibrate.calibrated_layers import calibrated_layers
from headcount.convert.merge.ladder import Ladder
from headcount.convert.plan.heads import HeadsByLayer, heads_of
from headcount.model.decoder_attentions import attentions
mixers = attentions(source.audit.spec)
after = next(iter(mixers.values())).num_key_value_heads // 4
heads = HeadsByLayer(layers={{at: heads_of(mixer, after) for at, mixer in mixers.items()}})
ladder = Ladder(method="merge", grouping="similar", refit="mlp", reconstruct=steps)
start = time.process_time()
for _ in calibrated_layers(source, heads, ladder, "builtin", tokens, lambda index: None, False):
    pass
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MAKE = """
import sys
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder, layers, hidden, heads = sys.argv[1], *map(int, sys.argv[2:])
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
PreTrainedTokenizerFast(tokenizer_object=inner).save_pretrained(folder)
config = LlamaConfig(
    vocab_size=8192, hidden_size=hidden, intermediate_size=hidden * 11 // 4 // 16 * 16,
    num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
)
LlamaForCausalLM(config).save_pretrained(folder)
"""


def child(program: str, *arguments: object) -> list[float]:
    """What a program prints last, as numbers."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in result.stdout.splitlines()[-1].split()] if result.stdout else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="*", default=[6, 24])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--reconstruct", type=int, default=0)
    options = parser.parse_args()
    for layers in options.layers:
        with tempfile.TemporaryDirectory() as folder:
            child(MAKE, folder, layers, options.hidden, HEADS)
            size = (Path(folder) / "model.safetensors").stat().st_size
            given = folder, options.tokens, options.reconstruct
            forward, calibrated = child(FORWARD, *given), child(CALIBRATE, *given)
        print(
            f"{layers} layers, {size / 2**20:.0f} MiB: forward {forward[0]:.1f} s,"
            f" {forward[1] / 2**10:.0f} MiB; calibrated {calibrated[0]:.1f} s,"
            f" {calibrated[1] / 2**10:.0f} MiB: {calibrated[0] / forward[0]:.2f} passes",
            flush=True,
        )


if __name__ == "__main__":
    main()
