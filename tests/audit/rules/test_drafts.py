"""Heads of drafts: sound, though they lack what a whole model has.

Names and shapes are those of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B and of
RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3, as vllm/model_executor/models/llama_eagle3.py
loads them, with smaller sizes.
"""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, Shapes, write_model
from headcount.arch.read_config import read_config
from headcount.audit import audit_model
from headcount.audit.audited import Audit

HEAD: dict[str, Any] = {**LLAMA_CONFIG, "num_hidden_layers": 1, "draft_vocab_size": 20}
EAGLE3 = {**HEAD, "architectures": ["LlamaForCausalLMEagle3"]}
HIDDEN, WIDTH, KEYS, MLP = 32, 32, 8, 48
PLAIN = HIDDEN * (WIDTH + 2 * KEYS) + WIDTH * HIDDEN


def layer(name: str, inputs: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}.self_attn.q_proj.weight": (WIDTH, inputs),
        f"{name}.self_attn.k_proj.weight": (KEYS, inputs),
        f"{name}.self_attn.v_proj.weight": (KEYS, inputs),
        f"{name}.self_attn.o_proj.weight": (HIDDEN, WIDTH),
        f"{name}.mlp.gate_proj.weight": (MLP, HIDDEN),
        f"{name}.mlp.up_proj.weight": (MLP, HIDDEN),
        f"{name}.mlp.down_proj.weight": (HIDDEN, MLP),
        f"{name}.post_attention_layernorm.weight": (HIDDEN,),
    }


def eagle3(name: str) -> Shapes:
    norms = {f"{name}.{norm}.weight": (HIDDEN,) for norm in ("input_layernorm", "hidden_norm")}
    outside = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (20, 32),
    }
    return {**layer(name, 2 * HIDDEN), **norms, **outside}


def eagle(states: int) -> Shapes:
    return {**layer("layers.0", HIDDEN), "fc.weight": (HIDDEN, states * HIDDEN)}


def codes(audit: Audit) -> dict[str, str]:
    return {finding.code: finding.severity for finding in audit.findings}


@pytest.mark.parametrize("name", ["midlayer", "layers.0"])
def test_a_head_of_eagle3_reads_two_states(tmp_path: Path, name: str) -> None:
    audit = audit_model(str(write_model(tmp_path, EAGLE3, eagle3(name))))
    assert codes(audit) == {"H218": "note"}
    assert sum(sum(parts) for parts in audit.stored.values()) == PLAIN + HIDDEN * (WIDTH + 2 * KEYS)


def test_a_head_of_eagle_has_no_norm_and_no_embedding(tmp_path: Path) -> None:
    audit = audit_model(str(write_model(tmp_path, HEAD, eagle(2))))
    assert codes(audit) == {"H218": "note"}


def test_what_is_wrong_with_a_head_is_said_all_the_same(tmp_path: Path) -> None:
    audit = audit_model(str(write_model(tmp_path, {**HEAD, "num_key_value_heads": 4}, eagle(2))))
    assert codes(audit)["H101"] == "error"


@pytest.mark.parametrize("shape", [(HIDDEN, HIDDEN), (3, 2 * HIDDEN), (HIDDEN, 2 * HIDDEN + 1)])
def test_another_matrix_of_that_name_is_no_draft(tmp_path: Path, shape: tuple[int, int]) -> None:
    shapes = {**eagle(2), "fc.weight": shape}
    assert codes(audit_model(str(write_model(tmp_path, HEAD, shapes))))["H112"] == "error"


def test_attention_by_the_config_alone() -> None:
    """q, k and v of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B are [4096, 8192] and [1024, 8192]."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    reading = read_config({**EAGLE3, **sizes, "intermediate_size": 14336}, "config.json")
    assert reading.spec.attention_parameters == 4096 * 8192 + 2 * 1024 * 8192 + 4096 * 4096
    assert reading.total()[0] is None


def test_the_config_of_speculators_nests_that_of_its_layers() -> None:
    config = {
        **{"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"},
        **{"draft_vocab_size": 20, "dtype": "bfloat16", "auto_map": {"": "eagle3.Config"}},
        "transformer_layer_config": {**HEAD, "architectures": None},
    }
    reading = read_config(config, "config.json")
    assert reading.spec.cache_bytes(tokens=1, bits=16) == 2 * KEYS * 2
    assert reading.spec.attention_parameters == PLAIN + HIDDEN * (WIDTH + 2 * KEYS)
