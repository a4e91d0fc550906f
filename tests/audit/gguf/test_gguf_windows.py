"""Windows of GGUF audits: each row is what the architecture's loader in llama.cpp does.

Typed from `load_arch_hparams` of src/models/*.cpp (llama.cpp of October 2026, as in
llama-cpp-python 0.3.36): the period and place of `load_swa_pattern`, and what sets `n_swa`.
"""

from typing import Any

import pytest

from gguf_files import key_values
from headcount.arch.gguf.spec import gguf_spec
from headcount.arch.registry import gguf_of, index


def windows(architecture: str, layers: int = 6, **values: Any) -> list[int | None]:
    spec = gguf_spec(key_values(architecture, layers, **values), "m")
    return [layer.mixers[0].window for layer in spec.layers]


LAST_OF_2, LAST_OF_4 = [9, None] * 4, [9, 9, 9, None] * 2
FIRST_OF_4 = [None, 9, 9, 9] * 2
PATTERNS: dict[str, list[int | None]] = {
    **dict.fromkeys(("gemma2", "gpt-oss"), LAST_OF_2),
    **dict.fromkeys(
        ("afmoe", "cohere2", "exaone-moe", "mellum", "muse-glimmer", "olmo2"), LAST_OF_4
    ),
    **dict.fromkeys(("cohere2moe", "laguna"), FIRST_OF_4),
    "gemma3": [9, 9, 9, 9, 9, None, 9, 9],
    "gemma-embedding": [9, 9, 9, 9, 9, None, 9, 9],
    "gemma3n": [9, 9, 9, 9, None, 9, 9, 9],
    "plamo3": [9] * 7 + [None],
    "modern-bert": [None, 9, 9, None, 9, 9, None, 9],
    "smallthinker": [None, 4096, 4096, 4096] * 2,  # whatever the file says
    "llama4": [8192, 8192, 8192, None] * 2,
    "exaone4": [None] * 8,  # only the model of 64 layers has windows
    "phi3": [None] * 8,  # "Phi SWA is currently disabled"
    **dict.fromkeys(("llama", "qwen3", "mistral3", "lfm2moe"), [None] * 8),
    "lfm2": [9] * 8,
}


@pytest.mark.parametrize("architecture", PATTERNS)
def test_windows_are_those_of_llama_cpp(architecture: str) -> None:
    assert windows(architecture, 8, attention__sliding_window=9) == PATTERNS[architecture]


def test_every_row_is_tested() -> None:
    assert {name for name in index()["gguf"] if gguf_of(name).windows} <= set(PATTERNS)


def test_exaone_of_64_layers_has_windows() -> None:
    assert windows("exaone4", 64, attention__sliding_window=9) == [9, 9, 9, None] * 16
    assert windows("exaone4", 64) == [4096, 4096, 4096, None] * 16


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("gemma2", [4096, None] * 3),  # "default value of gemma 2"
        ("llama4", [8192, 8192, 8192, None, 8192, 8192]),
        ("exaone-moe", [128, 128, 128, None, 128, 128]),
        ("gemma3", [None] * 6),
        ("smallthinker", [None] * 6),
        ("olmo2", [None] * 6),
    ],
)
def test_without_the_key_the_loader_decides(architecture: str, expected: list[int | None]) -> None:
    assert windows(architecture) == expected


@pytest.mark.parametrize("architecture", ["llama4", "smallthinker", "gemma3", "laguna"])
def test_a_window_of_0_is_none(architecture: str) -> None:
    assert windows(architecture, attention__sliding_window=0) == [None] * 6


@pytest.mark.parametrize("architecture", ["mimo2", "gemma4", "step35", "granite_swa", "gemma3"])
def test_a_list_in_the_file_decides(architecture: str) -> None:
    pattern = [True, False, False, True]
    found = windows(
        architecture, 4, attention__sliding_window=9, attention__sliding_window_pattern=pattern
    )
    assert found == [9, None, None, 9]


def test_a_period_in_the_file_decides() -> None:
    def period(number: int, architecture: str = "gemma3") -> list[int | None]:
        return windows(
            architecture, attention__sliding_window=9, attention__sliding_window_pattern=number
        )

    assert period(3) == [9, 9, None] * 2
    assert period(3, "laguna") == [None, 9, 9] * 2
    assert period(1) == [None] * 6
    assert period(0) == [9] * 6  # set_swa_pattern(0)


def test_layers_with_a_window_have_heads_of_their_own_size() -> None:
    """Gemma 4: key_length_swa (n_embd_head_k of src/llama-hparams.cpp)."""
    metadata = key_values(
        "gemma4",
        2,
        attention__sliding_window=9,
        attention__sliding_window_pattern=[True, False],
        attention__key_length=64,
        attention__value_length=64,
        attention__key_length_swa=32,
        attention__value_length_swa=16,
    )
    mixers = [layer.mixers[0] for layer in gguf_spec(metadata, "m").layers]
    assert [(mixer.head_dim, mixer.v_head_dim) for mixer in mixers] == [(32, 16), (64, 64)]
