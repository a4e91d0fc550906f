"""Recurrent state, indexers and latents of GGUF audits, held against what llama.cpp prints.

Lines of the kind `llama_memory_recurrent: size = …, R (f32): …, S (f32): …` and
`llama_kv_cache: size = …` from logs of real runs, with the key-values of the model that was run.
"""

from typing import Any

import pytest

from gguf_files import key_values
from headcount.arch.gguf.spec import gguf_spec
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Recurrent
from headcount.model.spec import ModelSpec

MIB = 2**20


def spec_of(architecture: str, layers: int, **values: Any) -> ModelSpec:
    return gguf_spec(key_values(architecture, layers, **values), "m")


def rows(spec: ModelSpec) -> list[float]:
    """MiB of r, of s and of the n-gram convolution, over all layers."""
    sums = [0, 0, 0]
    for layer in spec.layers:
        for mixer in layer.mixers:
            for i, state in enumerate(mixer.states if isinstance(mixer, Recurrent) else ()):
                assert state.bits == 32
                sums[i] += 4 * state.fixed
    return [round(size / MIB, 2) for size in sums]


QWEN35 = {
    **{"attention__head_count_kv": 4, "attention__key_length": 256, "attention__value_length": 256},
    **{"full_attention_interval": 4, "ssm__conv_kernel": 4, "ssm__state_size": 128},
    **{"ssm__group_count": 16},
}
# architecture, layers, key-values -> R, S and P in MiB for one sequence
LOGS: dict[str, tuple[str, int, dict[str, Any], list[float]]] = {
    # 64 layers, 1 cell: "R (f32): 5.62 MiB, S (f32): 144.00 MiB"
    "qwen3.5-27b": (
        "qwen35",
        64,
        {**QWEN35, "attention__head_count": 24, "ssm__inner_size": 6144},
        [5.62, 144.0, 0],
    ),
    # 32 layers, 1 cell: "R (f32): 2.25 MiB, S (f32): 48.00 MiB"
    "qwen3.5-4b": (
        "qwen35",
        32,
        {**QWEN35, "attention__head_count": 16, "ssm__inner_size": 4096},
        [2.25, 48.0, 0],
    ),
    # 40 layers, 1 cell: "R (f32): 2.81 MiB, S (f32): 60.00 MiB"
    "qwen3.5-35b-a3b": (
        "qwen35moe",
        40,
        {**QWEN35, "attention__head_count": 16, "ssm__inner_size": 4096},
        [2.81, 60.0, 0],
    ),
    # 48 layers, 1 cell: "R (f32): 4.22 MiB, S (f32): 108.00 MiB, P (f32): 0.35 MiB"
    "qwen4-exp": (
        "qwen4exp",
        48,
        {
            **{**QWEN35, "attention__head_count_kv": 2, "ssm__inner_size": 6144},
            **{"embedding_length": 2560, "hyper_connection__count": 4, "ple__layers": [1]},
            **{"ple__conv_kernel": 4, "ple__ngram_size": 3},
            **{"attention__indexer__key_length": 128},
        },
        [4.22, 108.0, 0.35],
    ),
    # 30 layers of which 8 attend, 1 cell: "R (f32): 0.34 MiB, S (f32): 0.00 MiB"
    "lfm2-2.6b": (
        "lfm2",
        30,
        {
            **{"embedding_length": 2048, "attention__head_count": 32, "shortconv__l_cache": 3},
            # eight of them; which ones they are does not matter here
            "attention__head_count_kv": [8 if i in range(2, 26, 3) else 0 for i in range(30)],
        },
        [0.34, 0.0, 0],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_recurrent_state_is_what_llama_cpp_prints(name: str) -> None:
    architecture, layers, values, expected = LOGS[name]
    spec = spec_of(architecture, layers, **values)
    assert rows(spec) == expected
    assert sum(la.mixers[0].kind == "recurrent" for la in spec.layers) == (
        22 if architecture == "lfm2" else layers * 3 // 4
    )


def test_kv_caches_are_what_llama_cpp_prints() -> None:
    """24,576 cells, 16 layers: 1536 MiB (qwen3.5-27b); 262,144 cells, 12 layers: K and V 3072 MiB
    each, keys of the indexer 768 MiB (qwen4-exp)."""
    architecture, layers, values, _ = LOGS["qwen3.5-27b"]
    spec = spec_of(architecture, layers, **values)
    assert spec.cache_bytes_per_token() * 24_576 == 1536 * MIB
    architecture, layers, values, _ = LOGS["qwen4-exp"]
    spec = spec_of(architecture, layers, **values)
    assert spec.cache_bytes_per_token() * 262_144 == (2 * 3072 + 768) * MIB


MAMBA = {
    **{"ssm__conv_kernel": 4, "ssm__inner_size": 512, "ssm__state_size": 16},
    "attention__head_count": 0,
}
MAMBA2 = {
    **{"ssm__conv_kernel": 4, "ssm__inner_size": 512, "ssm__state_size": 128},
    "ssm__group_count": 2,
}
KDA = {"ssm__conv_kernel": 4, "kda__head_dim": 32}
LATENT = {
    **{"attention__kv_lora_rank": 64, "rope__dimension_count": 16, "attention__key_length": 80},
    **{"attention__value_length": 64, "attention__key_length_mla": 48},
    "attention__value_length_mla": 32,
}
# By the formulas n_embd_r and n_embd_s of src/llama-hparams.cpp, hidden size 256, 8 heads:
# elements of r and of s, and the layers that are recurrent.
FORMULAS: dict[str, tuple[str, dict[str, Any], tuple[int, int], list[int]]] = {
    "mamba": ("mamba", MAMBA, (3 * 512, 16 * 512), [0, 1, 2, 3]),
    "mamba2": ("mamba2", MAMBA2, (3 * (512 + 2 * 2 * 128), 128 * 512), [0, 1, 2, 3]),
    "jamba": (
        "jamba",
        {**MAMBA, "attention__head_count": 8, "attention__head_count_kv": [0, 2, 0, 0]},
        (3 * 512, 16 * 512),
        [0, 2, 3],
    ),
    "granite": (
        "granitehybrid",
        {**MAMBA2, "attention__head_count_kv": [0, 0, 0, 2]},
        (3 * 1024, 128 * 512),
        [0, 1, 2],
    ),
    "nemotron": (
        "nemotron_h",
        {
            **MAMBA2,
            "attention__head_count_kv": [0, 0, 2, 0],
            "feed_forward_length": [0, 64, 0, 0],
        },
        (3 * 1024, 128 * 512),
        [0, 3],  # layer 1 is an MLP
    ),
    "falcon-h1": (
        "falcon-h1",
        {**MAMBA2, "attention__head_count_kv": 2},
        (3 * 1024, 128 * 512),
        [0, 1, 2, 3],
    ),
    "kimi": (
        "kimi-linear",
        {**KDA, **LATENT, "attention__head_count_kv": [0, 0, 0, 1]},
        (3 * 3 * 8 * 32, 8 * 32 * 32),
        [0, 1, 2],
    ),
    "minimax": (
        "minimax-01",
        {"attention__head_count_kv": 2, "attention__key_length": 64, "full_attention_interval": 2},
        (0, 8 * 64 * 64),
        [0, 2],
    ),
    "rwkv6": ("rwkv6", {"wkv__head_size": 64}, (2 * 256, 256 * 64), [0, 1, 2, 3]),
    "arwkv7": (
        "arwkv7",
        {"wkv__head_size": 64, "token_shift_count": 1, "attention__head_count": None},
        (256, 256 * 64),
        [0, 1, 2, 3],
    ),
    "listed": (
        "qwen3next",
        {**MAMBA2, "attention__recurrent_layers": [True, False, True, True]},
        (3 * 1024, 128 * 512),
        [0, 2, 3],
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_recurrent_state_by_the_formulas_of_llama_cpp(name: str) -> None:
    architecture, values, sizes, indices = FORMULAS[name]
    spec = spec_of(architecture, 4, **values)
    found = {
        layer.index: mixer
        for layer in spec.layers
        for mixer in layer.mixers
        if isinstance(mixer, Recurrent)
    }
    assert list(found) == indices
    assert {tuple(state.fixed for state in mixer.states) for mixer in found.values()} == {sizes}
    assert spec.constant_state_bytes() == 4 * sum(sizes) * len(indices)


def test_falcon_h1_attends_in_every_layer_too() -> None:
    spec = spec_of("falcon-h1", 2, **MAMBA2, attention__head_count_kv=2)
    assert [[m.kind for m in la.mixers] for la in spec.layers] == [["attention", "recurrent"]] * 2
    assert spec.cache_bytes_per_token() == 2 * 2 * 2 * 32 * 2


def test_an_mlp_layer_of_nemotron_h_keeps_nothing() -> None:
    architecture, values, _, _ = FORMULAS["nemotron"]
    assert spec_of(architecture, 4, **values).layers[1].mixers == ()


def test_latents_of_older_files_are_kept_head_by_head() -> None:
    """Without *_mla lengths `is_mla()` is false, and K and V of every head are cached."""
    values = {**LATENT, "attention__key_length": 48, "attention__value_length": 32}
    new = spec_of("deepseek2", 1, **LATENT, attention__head_count_kv=1)
    old = {name: value for name, value in values.items() if not name.endswith("_mla")}
    assert new.cache_bytes_per_token() == (64 + 16) * 2
    assert spec_of("deepseek2", 1, **old).cache_bytes_per_token() == 8 * (48 + 32) * 2


@pytest.mark.parametrize(
    ("architecture", "more", "elements"),
    [
        ("deepseek32", {}, [24] * 4),
        ("deepseek2", {}, [0] * 4),  # no indexer
        ("glm-dsa", {"attention__indexer__types": [1, 0, 0, 1]}, [24, 0, 0, 24]),
        ("glm-dsa", {"context_length": 2**20}, [24, 24, 24, 0]),  # GLM-5.2
        ("glm-dsa", {"context_length": 2**17}, [24] * 4),
    ],
)
def test_keys_of_an_indexer(architecture: str, more: dict[str, Any], elements: list[int]) -> None:
    values = {**LATENT, **more, "attention__indexer__key_length": 24}
    spec = spec_of(architecture, 4, attention__head_count_kv=1, **values)
    assert [la.mixers[0].growing_elements() - 80 for la in spec.layers] == elements


def test_layers_in_a_loop_have_a_cache_for_each_pass() -> None:
    once = spec_of("nanbeige", 3, attention__head_count_kv=2)
    thrice = spec_of("nanbeige", 3, attention__head_count_kv=2, num_loops=3)
    assert thrice.cache_bytes(tokens=10) == 3 * once.cache_bytes(tokens=10)


def test_hrm_text_has_a_cache_for_each_pass_through_its_two_stacks() -> None:
    """Two layers a stack; the low stack runs 3 x 2 times, the high one 3 times."""
    cycles = {"hrm__layers_per_stack": 2, "hrm__h_cycles": 3, "hrm__l_cycles": 2}
    spec = spec_of("hrm_text", 2 * 3 * (2 + 1), attention__head_count_kv=2, **cycles)
    one = 2 * 2 * 32 * 2 * 10
    assert [la.mixers[0].state_bytes(10, 0, 16) for la in spec.layers] == [6 * one] * 2 + [
        3 * one
    ] * 2
    with pytest.raises(HeadcountError, match="block_count 17 is not"):
        spec_of("hrm_text", 17, **cycles)


@pytest.mark.parametrize(
    ("architecture", "values", "message"),
    [
        ("mamba", {}, "no key tells the size"),
        ("lfm2", {"attention__head_count_kv": [0, 2]}, "no key tells the size"),
        ("qwen35", {**QWEN35, "full_attention_interval": 0}, "interval is 0"),
        ("kimi-linear", {**KDA, "attention__head_count": 0}, "head_count"),
        ("qwen35", {**QWEN35, "attention__recurrent_layers": [True]}, "1 values for 2 layers"),
        ("nemotron_h", {**MAMBA2, "feed_forward_length": "x"}, "not a number"),
    ],
)
def test_what_is_impossible_has_its_message(
    architecture: str, values: dict[str, Any], message: str
) -> None:
    more = {"attention__head_count_kv": [0, 0]} | values if architecture != "mamba" else values
    with pytest.raises(HeadcountError, match=message):
        spec_of(architecture, 2, **more)
