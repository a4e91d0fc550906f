"""Greedy tokens of vLLM itself: FOLDER, the tokens of a prompt and how many to add, as JSON; others
print to the same stream."""

import json
import sys

import torchvision_operators  # noqa: F401
from vllm import LLM, SamplingParams


def main() -> None:
    folder, prompt, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    model = LLM(
        folder,
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        gpu_memory_utilization=0.2,  # of the machine's memory, of which others take their part
        # The kernel that rotates on a CPU (0.32) takes a multi-head latent attention's part of a
        # query for a whole one: a DeepSeek-V3 as transformers makes it comes out wrong, too.
        compilation_config={"custom_ops": ["none"]},
    )
    wanted = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    (made,) = model.generate([{"prompt_token_ids": prompt}], wanted)
    print("tokens:", json.dumps(list(made.outputs[0].token_ids)), flush=True)


if __name__ == "__main__":
    main()
