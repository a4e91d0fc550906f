"""What TransformerLens' head_detector scores, in an environment that has it, not in headcount's.

Reads a line with a config.json from standard input for each model, and prints a line for each:
`{"scores": {head: [layers][heads]}}`, means over sequences, or `{"error"}` for one that
TransformerLens does not read.
"""

import json
import os
import sys
import tempfile
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer, models
from transformer_lens import head_detector
from transformer_lens.model_bridge import TransformerBridge
from transformers import PreTrainedTokenizerFast

from lens_models import lens_model, lens_tokens

HEADS = {
    "previous_token": head_detector.get_previous_token_head_detection_pattern,
    "duplicate_token": head_detector.get_duplicate_token_head_detection_pattern,
    "induction": head_detector.get_induction_head_detection_pattern,
}


def tokenizer(folder: str) -> PreTrainedTokenizerFast:
    """TransformerLens wants one, and reads it from a folder again; none of it is used."""
    words = {f"t{number}": number for number in range(30)}
    inner = Tokenizer(models.WordLevel(words, unk_token="t0"))
    own = {"bos_token": "t1", "eos_token": "t2", "pad_token": "t3", "unk_token": "t0"}
    PreTrainedTokenizerFast(tokenizer_object=inner, **own).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def scores(config: dict[str, Any]) -> dict[str, Any]:
    model = lens_model(config)
    model.config.architectures = [type(model).__name__]
    bridge = TransformerBridge.boot_transformers(
        "model", hf_model=model, tokenizer=TOKENIZER, device="cpu", dtype=torch.float32
    )
    found: dict[str, Any] = {name: [] for name in HEADS}
    with torch.no_grad():
        _, cache = bridge.run_with_cache(lens_tokens())
    layers = sorted({int(key.split(".")[1]) for key in cache if key.endswith("hook_pattern")})
    for layer in layers:
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        for name, detection in HEADS.items():
            heads = pattern.unbind(dim=1)
            found[name].append([score(head, detection) for head in heads])
    return {"scores": found}


def score(pattern: torch.Tensor, detection: Any) -> float:
    each = [
        head_detector.compute_head_attention_similarity_score(
            pattern[row],
            detection(ids[None]),
            exclude_bos=False,
            exclude_current_token=False,
            error_measure="mul",
        )
        for row, ids in enumerate(lens_tokens())
    ]
    return round(sum(each) / len(each), 7)


TOKENIZER = tokenizer(tempfile.mkdtemp())
for line in sys.stdin:
    try:
        answer = scores(json.loads(line))
    except Exception as error:
        first, *_ = str(error).splitlines() or [""]
        answer = {"error": f"{type(error).__name__}: {first}"}
    print(json.dumps(answer), flush=True)
