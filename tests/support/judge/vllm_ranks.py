"""The starts of which vLLM's own classes say what is on a rank, and their record.

`python tests/support/judge/vllm_ranks.py > tests/plan/engines/vllm_ranks.jsonl` records it anew,
with the interpreter that HEADCOUNT_VLLM_PYTHON names.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headcount.sources.catalogue import find_row, read_entry

SCRIPT = Path(__file__).with_name("ask_vllm_ranks.py")
RECORD = Path(__file__).parents[2] / "plan" / "engines" / "vllm_ranks.jsonl"
VERSION = "0.32.0"


def _lora(loras: int, rank: int = 16, sharded: bool = False) -> dict[str, Any]:
    return {"max_loras": loras, "max_lora_rank": rank, "fully_sharded_loras": sharded}


_EXPERTS = {"expert_parallel": True}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    # experts
    *(("mixtral-8x7b", {"tp": tp, "lora": _lora(2)}) for tp in (1, 2)),
    ("mixtral-8x7b", {"tp": 2, "lora": _lora(2, sharded=True)}),
    ("mixtral-8x7b", {"tp": 2, **_EXPERTS, "lora": _lora(2)}),
    ("mixtral-8x7b", {"tp": 2, "dp": 2}),
    ("mixtral-8x7b", {"dp": 4, **_EXPERTS}),
    ("qwen3-30b-a3b", {"tp": 2, "lora": _lora(4, 32)}),
    ("qwen3-30b-a3b", {"tp": 4, "dp": 2, **_EXPERTS}),
    ("gpt-oss-20b", {"tp": 2, "lora": _lora(2)}),
    ("gpt-oss-20b", {"tp": 2, **_EXPERTS}),
    *(("deepseek-v2-lite", {"tp": 2, "lora": _lora(2, sharded=s)}) for s in (False, True)),
    ("glm-4.5-air", {"tp": 2, "lora": _lora(2, 8)}),
    ("qwen3-next", {"tp": 2, "lora": _lora(2)}),
    ("deepseek-v3", {"tp": 8, **_EXPERTS}),
    ("deepseek-v3", {"tp": 2, "dp": 8, **_EXPERTS}),
    ("deepseek-v3", {"dp": 16, **_EXPERTS}),
    ("deepseek-v3", {"dp": 16, **_EXPERTS, "redundant": 32}),
    # heads whole and shared, embeddings and a head that adapters change, fused matrices
    *(("llama-3-8b", {"tp": tp, "lora": _lora(2)}) for tp in (1, 4, 16)),
    ("llama-3-8b", {"tp": 4, "lora": _lora(1, 64, sharded=True)}),
    *(("qwen2.5-7b", {"tp": tp, "lora": _lora(4, 32)}) for tp in (1, 2)),
    *((name, {"tp": 2, "lora": _lora(2)}) for name in ("qwen3-8b", "phi-3-mini", "phi-4")),
    ("phi-4", {"tp": 2, "lora": _lora(2, sharded=True)}),
    *((name, {"tp": 2, "lora": _lora(2)}) for name in ("gemma-2-9b", "gemma-3-27b")),
    *((name, {"lora": _lora(2)}) for name in ("mistral-7b-v0.3", "qwen2.5-vl-7b")),
    # layers that predict further tokens
    *((name, {"tp": 2, "drafts": True}) for name in ("deepseek-v3", "glm-4.5-air", "qwen3-next")),
)


def config_of(name: str) -> dict[str, Any]:
    """In 16 bit: the CPU build has no kernels for fewer."""
    row = find_row(name)
    assert row is not None, name
    config = dict(read_entry(row).config)
    config.pop("quantization_config", None)
    return config


def asked(python: str, cases: tuple[tuple[str, dict[str, Any]], ...] = CASES) -> Iterator[str]:
    """The lines of the record, as `python`'s vLLM has them."""
    lines = "".join(json.dumps({"config": config_of(n), **case}) + "\n" for n, case in cases)
    done = subprocess.run(
        [python, str(SCRIPT)], input=lines, capture_output=True, text=True, check=True
    )
    for (name, case), line in zip(cases, done.stdout.splitlines(), strict=True):
        yield json.dumps({"model": name, **case, **json.loads(line)}) + "\n"


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps({"vllm": VERSION, "tool": "tests/support/judge/vllm_ranks.py"}) + "\n"
    )
    sys.stdout.writelines(asked(os.environ["HEADCOUNT_VLLM_PYTHON"]))
