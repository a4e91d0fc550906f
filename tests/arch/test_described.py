"""What `headcount families` says of a type, and a type of remote code whose layers differ."""

import json

import pytest
from click.testing import CliRunner

from headcount.arch.class_defaults import class_defaults
from headcount.arch.described import described
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.cli import main
from headcount.model.errors import InvalidConfigError


def families(*arguments: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(main, ["families", "--format", "json", *arguments])
    assert done.exit_code == 0
    found: list[dict[str, object]] = json.loads(done.stdout)["families"]
    return found


def test_it_lists_every_row_once() -> None:
    found = families()
    assert [row["model_type"] for row in found] == sorted(ARCHITECTURES)
    assert all(row["mixers"] for row in found)
    remote = {row["model_type"] for row in found if row["source"] == "remote code"}
    assert remote == {
        t for t in ARCHITECTURES if class_defaults(ARCHITECTURES[t].config.read_as or t) is None
    }


def test_search() -> None:
    assert {row["model_type"] for row in families("--search", "T5Gemma")} == {"t5gemma", "t5gemma2"}


@pytest.mark.parametrize(
    ("model_type", "mixers", "bias", "norm", "reads"),
    [
        ("llama", {"attention"}, "attention_bias / attention_bias", "none", None),
        ("gemma3", {"attention", "attention, windowed"}, None, "head", "gemma3_text"),
        ("deepseek_v3", {"latent attention"}, None, "none", None),
        ("bert", {"attention, no cache"}, "always / always", "none", None),
        ("whisper", {"attention", "attention, no cache", "cross attention"}, None, "none", None),
        ("qwen2_5_omni", {"attention", "attention, windowed"}, None, "none", "qwen2_5_omni_text"),
        ("cohere", {"attention"}, None, "heads if use_qk_norm", None),
    ],
)
def test_what_is_said_of_a_row(
    model_type: str, mixers: set[str], bias: str | None, norm: str, reads: str | None
) -> None:
    said = described(model_type)
    assert set(said.mixers) == mixers
    assert said.bias == bias or bias is None
    assert (said.norm, said.reads) == (norm, reads)


OPENELM = {
    "model_type": "openelm",
    "model_dim": 1280,
    "head_dim": 64,
    "num_transformer_layers": 2,
    "num_query_heads": [12, 16],
    "num_kv_heads": [3, 4],
    "normalize_qk_projections": True,
}


def test_openelm_has_heads_of_its_own_in_each_layer() -> None:
    layers = read_config(OPENELM, "config").spec.layers
    heads = [(m.num_attention_heads, m.num_key_value_heads) for la in layers for m in la.mixers]
    assert heads == [(12, 3), (16, 4)]
    assert [layer.parameters().norm for layer in layers] == [128, 128]


@pytest.mark.parametrize("heads", [[12], [12, 0], [12, 15], "12"])
def test_a_list_that_does_not_fit_is_refused(heads: object) -> None:
    with pytest.raises(InvalidConfigError):
        read_config({**OPENELM, "num_query_heads": heads}, "config")
