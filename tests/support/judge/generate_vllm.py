"""Greedy tokens of vLLM itself: FOLDER, the tokens of a prompt and how many to add, as JSON."""

import json
import sys

import torchvision_operators  # noqa: F401
from vllm import LLM, SamplingParams


def main() -> None:
    folder, prompt, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    model = LLM(folder, skip_tokenizer_init=True, enforce_eager=True, dtype="float32")
    wanted = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    (made,) = model.generate([{"prompt_token_ids": prompt}], wanted)
    print(json.dumps(list(made.outputs[0].token_ids)))


if __name__ == "__main__":
    main()
