"""What llama.cpp computes of GGUF files: `python logits_worker.py`, in its own environment.

A line of JSON on standard input is a file and what is asked of it, a line on standard output the
answer. `tokens`: the logits behind each. `text`: the tokens that it is cut into, with those that
the file adds, and `more` by greedy choice. The cache and the sums are float32, so that they are as
near to transformers' as llama.cpp comes.
"""

import json
import sys
from importlib import import_module
from typing import Any

llama_cpp: Any = import_module("llama_cpp")  # this folder has the same name

CONTEXT = 64


def answer(path: str, asked: dict[str, Any]) -> Any:
    model = llama_cpp.Llama(
        model_path=path,
        n_ctx=CONTEXT,
        n_batch=CONTEXT,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    if "tokens" in asked:
        model.eval(asked["tokens"])
        return model.scores[: len(asked["tokens"])].tolist()
    tokens = model.tokenize(asked["text"].encode(), special=False)
    for _ in range(asked.get("more", 0)):
        model.reset()
        model.eval(tokens)
        tokens.append(int(model.scores[len(tokens) - 1].argmax()))
    return tokens


for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps(answer(question.pop("path"), question)), flush=True)
