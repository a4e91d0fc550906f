"""Files of a class that is published with them, under a model_type that transformers has."""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import write_model
from headcount.audit import audit_model

# bigcode/santacoder at a fraction of its size: q beside one K/V head, both [in, out] with a bias,
# by modeling_gpt2_mq.py. The names are those of its file.
WIDTH, HEADS, LAYERS, WORDS, LENGTH = 64, 4, 3, 90, 32
SANTACODER: dict[str, Any] = {
    **{"model_type": "gpt2", "architectures": ["GPT2LMHeadCustomModel"]},
    **{"attention_head_type": "multiquery", "n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS},
    **{"n_inner": 4 * WIDTH, "n_positions": LENGTH, "vocab_size": WORDS, "dtype": "bfloat16"},
    "auto_map": {"AutoModelForCausalLM": "modeling_gpt2_mq.GPT2LMHeadCustomModel"},
}
BOTH = 2 * WIDTH // HEADS


def shapes() -> dict[str, tuple[int, ...]]:
    outside = {"wte.weight": (WORDS, WIDTH), "wpe.weight": (LENGTH, WIDTH)}
    found = {f"transformer.{name}": shape for name, shape in outside.items()}
    found |= {f"transformer.ln_f.{name}": (WIDTH,) for name in ("weight", "bias")}
    for layer in (f"transformer.h.{index}" for index in range(LAYERS)):
        for name, (inputs, outputs) in {
            **{"attn.q_attn": (WIDTH, WIDTH), "attn.kv_attn": (WIDTH, BOTH)},
            **{"attn.c_proj": (WIDTH, WIDTH), "mlp.c_fc": (WIDTH, 4 * WIDTH)},
            "mlp.c_proj": (4 * WIDTH, WIDTH),
        }.items():
            found[f"{layer}.{name}.weight"] = (inputs, outputs)
            found[f"{layer}.{name}.bias"] = (outputs,)
        for name in ("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"):
            found[f"{layer}.{name}"] = (WIDTH,)
    return found


def test_its_one_key_value_head_is_read_and_its_names_are_known(tmp_path: Path) -> None:
    audit = audit_model(str(write_model(tmp_path, SANTACODER, shapes())))
    assert {finding.code for finding in audit.findings} == {"H301"}
    assert {m.num_key_value_heads for layer in audit.spec.layers for m in layer.mixers} == {1}
    assert audit.spec.cache_bytes_per_token() == LAYERS * BOTH * 2
    (first, *_) = audit.spec.layers
    parts = audit.layer_parts(first)
    assert (parts.q, parts.k, parts.v) == (WIDTH * WIDTH + WIDTH, *[(WIDTH + 1) * BOTH // 2] * 2)


def test_the_total_is_the_published_one(tmp_path: Path) -> None:
    """1,124,886,528 parameters, as the same weights have under gpt_bigcode."""
    sizes = {"n_embd": 2048, "n_head": 16, "n_layer": 24, "n_inner": 8192}
    config = {**SANTACODER, **sizes, "n_positions": 2048, "vocab_size": 49280}
    folder = write_model(tmp_path, config, {})
    assert audit_model(str(folder / "config.json")).spec.parameters == 1_124_886_528


@pytest.mark.parametrize(
    "changes",
    [{"architectures": ["GPT2LMHeadModel"]}, {"attention_head_type": "multihead"}],
)
def test_another_class_or_word_leaves_a_head_for_each_query_head(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = write_model(tmp_path, {**SANTACODER, **changes}, {})
    spec = audit_model(str(folder / "config.json")).spec
    assert {m.num_key_value_heads for layer in spec.layers for m in layer.mixers} == {HEADS}


@pytest.mark.parametrize(
    ("name", "severity"),
    [("GPT2LMHeadCustomModel", "warning"), ("GPT2LMHeadModel", "note"), (None, "note")],
)
def test_code_is_needed_where_transformers_has_the_type_and_not_the_class(
    tmp_path: Path, name: str | None, severity: str
) -> None:
    config = {**SANTACODER, "architectures": [name] if name else None}
    folder = write_model(tmp_path, config, {})
    found = audit_model(str(folder / "config.json")).findings
    (code,) = (finding for finding in found if finding.code == "H301")
    assert code.severity == severity
    assert ("load it without" in (code.hint or "")) == (severity == "note")
