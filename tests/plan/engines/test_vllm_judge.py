"""vLLM itself as the judge: what its own code makes of every config of the catalogue and of every
class that it has, held against plans. `tests/truth/vllm.jsonl` has its answers; the slow test asks
it anew.
"""

from collections import Counter
from pathlib import Path

import pytest

from vllm_cases import (
    SETTINGS,
    Answer,
    Recorded,
    Refusal,
    default_length,
    differences,
    header,
    model_of,
    recorded,
)
from vllm_environment import VERSION, NoEnvironmentError, asked, interpreter

# Why a plan says other than vLLM. One that has become equal fails.
DIFFERENT = {
    "Alibaba-NLP/gte-Qwen2-7B-instruct": "is_causal false: vLLM embeds with it, and keeps nothing",
    "openai/clip-vit-base-patch32": "vLLM runs its encoder of texts as it does decoders",
    "XiaomiMiMo/MiMo-7B-Base": "its class of configs, which takes use_sliding_window for no window,"
    " lies beside its weights: vLLM was asked without it",
}


def one_of_each_type() -> list[Recorded]:
    """The first model of each model_type, and every exception."""
    found: dict[str, Recorded] = {}
    for case in recorded():
        if case.id not in DIFFERENT and any(isinstance(n, Answer) for n in case.answers):
            found.setdefault(model_of(case).spec.model_type, case)
    return [*found.values(), *(case for case in recorded() if case.id in DIFFERENT)]


def assert_equal(case: Recorded) -> None:
    found = differences(case, header()["vllm"])
    assert bool(found) == (case.id in DIFFERENT), "\n".join(
        f"{SETTINGS[number]}: {text}" for number, text in found.items()
    )


@pytest.mark.parametrize("case", one_of_each_type(), ids=lambda case: str(case.id))
def test_a_plan_has_the_blocks_tokens_and_requests_of_vllms_own_code(case: Recorded) -> None:
    assert_equal(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", recorded(), ids=lambda case: str(case.id))
def test_so_has_that_of_every_model(case: Recorded) -> None:
    assert_equal(case)
