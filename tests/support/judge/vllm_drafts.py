"""Starts with a draft of which vLLM's own code says what the cache is, and their record.

`python tests/support/judge/vllm_drafts.py > tests/plan/engines/vllm_drafts.jsonl` records it anew,
with the interpreter that HEADCOUNT_VLLM_PYTHON names.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_ranks import VERSION, config_of

SCRIPT = Path(__file__).with_name("ask_vllm_drafts.py")
RECORD = Path(__file__).parents[2] / "plan" / "engines" / "vllm_drafts.jsonl"
AVAILABLE = 20 * 2**30
# The config that yuhuili/EAGLE3-LLaMA3.1-Instruct-8B publishes; its pytorch_model.bin has 850 MB.
EAGLE3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    **{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1},
    **{"head_dim": 128, "vocab_size": 128256, "draft_vocab_size": 32000, "torch_dtype": "float16"},
    **{"max_position_embeddings": 2048, "tie_word_embeddings": False},
}
# The sizes of z-lab/Qwen3-8B-DFlash-b16's published config.
DFLASH: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    **{"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 5},
    **{"head_dim": 128, "vocab_size": 151936, "torch_dtype": "bfloat16", "block_size": 16},
    **{"max_position_embeddings": 40960, "tie_word_embeddings": False, "num_target_layers": 36},
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}
# model, method, draft, tokens, tp, pp, context
Case = tuple[str, str, str | None, int, int, int, int]
CASES: tuple[Case, ...] = (
    ("deepseek-v3", "mtp", None, 1, 8, 1, 32768),
    ("deepseek-v3.2", "mtp", None, 1, 8, 1, 8192),
    ("glm-4.5-air", "mtp", None, 1, 2, 1, 8192),
    ("qwen3-next", "mtp", None, 2, 2, 1, 32768),
    ("qwen3.5-27b", "mtp", None, 3, 2, 1, 262144),
    ("llama-3.1-8b", "eagle3", "eagle3", 3, 1, 1, 8192),
    ("llama-3.1-8b", "eagle3", "eagle3", 3, 1, 2, 8192),
    ("gpt-oss-20b", "eagle3", "eagle3", 3, 1, 1, 8192),
    ("qwen3-32b", "draft_model", "qwen3-0.6b", 4, 1, 1, 8192),
    ("qwen3-32b", "draft_model", "qwen3-0.6b", 4, 4, 1, 8192),
    ("gemma-3-27b", "draft_model", "gemma-3-1b", 4, 1, 1, 8192),
    ("gemma-3-27b", "ngram", None, 4, 1, 1, 8192),
    ("qwen3-8b", "dflash", "dflash", 15, 1, 1, 8192),
    ("qwen3-8b", "dflash", "dflash", 15, 2, 1, 8192),
)
_OWN = {"eagle3": EAGLE3, "dflash": DFLASH}


def draft_config(name: str | None) -> dict[str, Any] | None:
    return None if name is None else _OWN.get(name) or config_of(name)


def _line(case: Case) -> str:
    model, method, draft, tokens, tp, pp, context = case
    settings = {
        **{"available": AVAILABLE, "tensor_parallel_size": tp, "pipeline_parallel_size": pp},
        "max_model_len": context,
        "speculative_config": {"method": method, "num_speculative_tokens": tokens},
    }
    configs = {"config": config_of(model), "draft": draft_config(draft)}
    return json.dumps({**configs, "eagle": method == "eagle3", "settings": settings}) + "\n"


def asked(python: str) -> Iterator[str]:
    """The lines of the record, as `python`'s vLLM has them."""
    lines = "".join(_line(case) for case in CASES)
    done = subprocess.run(
        [python, str(SCRIPT)], input=lines, capture_output=True, text=True, check=True
    )
    for case, line in zip(CASES, done.stdout.splitlines(), strict=True):
        yield json.dumps({"case": case, **json.loads(line)}) + "\n"


if __name__ == "__main__":
    first = {"vllm": VERSION, "tool": "tests/support/judge/vllm_drafts.py"}
    sys.stdout.write(json.dumps(first) + "\n")
    sys.stdout.writelines(asked(os.environ["HEADCOUNT_VLLM_PYTHON"]))
