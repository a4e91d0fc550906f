"""The table of what can be converted: held against the sweep, and printed without the extra."""

import json

import pytest
from click.testing import CliRunner

from conversion_limits import BY_LAYER, REFUSED
from headcount.cli import main
from headcount.convert.families import convertible

FOUND = convertible()
NATIVE = {row.model_type: row for row in FOUND if row.home == "native"}
ROWS = {row.model_type: row for row in FOUND}


def test_types_of_each_kind_have_a_home() -> None:
    assert {
        *("llama", "phi3", "dbrx", "falcon", "gpt_bigcode", "gemma4_text", "qwen3_next", "bamba"),
        *(
            "mimo_v2_flash",
            "zamba2",
            "t5gemma",
            "t5gemma2",
            "mllama",
            "qwen2_vl",
            "granitemoehybrid",
        ),
    } <= NATIVE.keys()
    assert NATIVE["gpt_bigcode"].key_value_heads == "1"
    assert NATIVE["diffllama"].key_value_heads == "even divisors"
    rehomes = {(row.model_type, row.home.removeprefix("rehome: ")) for row in FOUND}
    assert {
        *(("gpt2", "gpt_bigcode"), ("opt", "gpt_bigcode"), ("gpt_neox", "phi")),
        *(("gpt_neox", "starcoder2"), ("gptj", "phi"), ("codegen", "phi"), ("falcon", "falcon")),
    } <= rehomes
    by_layer = {row.model_type for row in FOUND if row.key_value_heads == "by layer"}
    assert by_layer == BY_LAYER
    custom = {row.model_type for row in FOUND if row.home == "custom"} - by_layer
    assert {"bart", "t5", "bloom", "opt", "gpt2", "whisper", "mpt", "persimmon"} <= custom
    assert not custom & NATIVE.keys() - {"falcon", "gpt_bigcode"}


def test_types_without_fewer_heads_have_none() -> None:
    """No cache, latent attention, recurrent only, a K/V head per query head, or a reason."""
    assert not ROWS.keys() & {
        *("vit", "deepseek_v3", "mamba", "rwkv", "xlnet", "openai-gpt"),
        *REFUSED,
    }


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_prints_the_table(form: str) -> None:
    result = CliRunner().invoke(main, ["convert", "--families", "--format", form])
    assert result.exit_code == 0
    assert "llama.cpp" in result.output
    if form == "json":
        families = json.loads(result.output)["families"]
        assert [row["model_type"] for row in families] == sorted(row.model_type for row in FOUND)


def test_other_uses_of_the_command_need_source_and_target() -> None:
    result = CliRunner().invoke(main, ["convert", "somewhere"])
    assert result.exit_code == 2
    assert "SOURCE, TARGET and --kv-heads are needed" in result.output
