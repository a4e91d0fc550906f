"""The bytes of a tiny model in every format, against the files that the formats' libraries wrote.

saved_quantised.jsonl has what transformers 5.24 saved of a Llama in bfloat16 (the sizes of
`TINY`), with bitsandbytes 0.50, torchao 0.18 and compressed-tensors 0.20 on a CPU, what Model
Optimizer 0.47, AutoRound 0.16 and Quark 0.13 exported of it, and the states of transformers'
BitLinear and EetqLinear: the sum of all tensors' bytes, and the settings in config.json.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config_specs import read_spec
from headcount.arch.formats.by_config import weights_by_config
from headcount.arch.formats.known import gptq, grouped
from headcount.arch.formats.of_configs import scheme_of
from headcount.arch.formats.on_loading import hqq_scheme, quanto_scheme
from headcount.arch.formats.scheme import Choice, UnknownFormatError
from headcount.arch.formats.weight_bytes import Stored
from headcount.arch.modules.module import Module
from headcount.model.errors import HeadcountError, InvalidConfigError, UnsupportedModelError

TINY = {
    **{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "vocab_size": 1000},
    **{"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2},
    **{"dtype": "bfloat16", "tie_word_embeddings": False},
}
SAVED = [
    json.loads(line)
    for line in (Path(__file__).parent / "saved_quantised.jsonl").read_text("utf-8").splitlines()
]
MORE_SETTINGS = [
    {"quantization_config": settings}
    for settings in (
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*q": {"bits": 8}}, "lm_head": True},
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"},
        {"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": "NVFP4"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "quantized_layers": {}, "ignore": []},
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}},
        {"quant_method": "quanto", "weights": "int4"},
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
        {"bits": 4, "group_size": 64, "mode": "affine", "lm_head": False},
    )
]
ATTENTION = 2 * 512 * (512 + 128)
MLPS = 3 * 512 * 1408
WIDE = 2 * (2 * 1000 * 512 + 5 * 512)  # embeddings, head and norms in 16 bit


def nbytes(settings: dict[str, Any], **config: Any) -> int:
    """Of all weights of the tiny model with these settings."""
    whole = {**TINY, "quantization_config": settings, **config}
    found = weights_by_config(whole, read_spec(whole, "config.json"), wide_bits=16)
    assert found is not None
    return found.weights.nbytes


@pytest.mark.parametrize("saved", SAVED, ids=[each["name"] for each in SAVED])
def test_files_that_libraries_wrote(saved: dict[str, Any]) -> None:
    found = nbytes(saved["quantization_config"])
    # bitsandbytes describes each matrix in JSON, some bytes of which follow its values.
    assert found == pytest.approx(saved["bytes"], abs=14 if "nf4" in saved["name"] else 0)


MATRIX = Module("layers.0.mlp.up_proj", "mlp", "up", 1408, 512)


def of_matrix(choice: Choice) -> int:
    form = choice(MATRIX, ("model.layers.0.mlp.up_proj",))
    assert form is not None
    return form.nbytes(MATRIX.rows, MATRIX.columns)


@pytest.mark.parametrize(
    ("weights", "saved"),
    [("int8", 723_716), ("float8", 723_716), ("int4", 382_980), ("int2", 202_756)],
)
def test_a_matrix_of_quanto(weights: str, saved: int) -> None:
    """The state of optimum-quanto 0.2.7's QLinear of [1408, 512] in bfloat16."""
    assert of_matrix(quanto_scheme({"weights": weights}, {})) == saved


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"quant_method": "quanto", "weights": "int2"}, "quanto, 2 bit"),
        ({"quant_method": "quanto", "weights": "int4"}, "quanto, 4 bit"),
        ({"quant_method": "quanto", "weights": "int8"}, "quanto, 8 bit"),
        ({"quant_method": "eetq", "weights": "int8"}, "eetq, 8 bit"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "gptq, 3 bit"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq, 4 bit"),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2}}},
            "hqq, 2 bit",
        ),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "torchao, 4 bit"),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "torchao, 8 bit"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, 4 bit"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes, int8"),
        ({"quant_method": "bitnet"}, "bitnet"),
    ],
)
def test_a_format_is_called_by_the_bits_of_its_codes(settings: dict[str, Any], label: str) -> None:
    scheme = scheme_of({"quantization_config": settings})
    assert scheme is not None
    form = scheme.choose(MATRIX, ("model.layers.0.mlp.up_proj",))
    assert form is not None
    assert Stored(form.name, 1, 1).label(scheme.name) == label
    assert str(form.bits) in label or (form.bits == 2 and label == "bitnet")


@pytest.mark.parametrize(
    "kind",
    [
        *("int8_dynamic_activation_int4_weight", "float8_dynamic_activation_int4_weight"),
        *("uintx_weight_only", "intx_weight_only", "fqn_to"),
    ],
)
def test_weights_of_another_width_than_their_inputs_are_not_taken_for_it(kind: str) -> None:
    settings = {"quant_method": "torchao", "quant_type": kind}
    with pytest.raises(UnknownFormatError, match="torchao has stored it as"):
        scheme_of({"quantization_config": settings})


MLC = {
    # sizes of the file, total parameters, GiB and bits a parameter that mlc_llm convert_weight
    # printed: public logs of Qwen2.5-0.5B-Instruct and Meta-Llama-3-8B-Instruct.
    "a 0.5 B model with a tied head": (
        {
            **{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864},
            **{"num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2},
            **{"vocab_size": 151936, "tie_word_embeddings": True},
        },
        494_032_768,
        0.259,
        4.502,
    ),
    "an 8 B model": (
        {
            **{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336},
            **{"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8},
            **{"vocab_size": 128256, "tie_word_embeddings": False},
        },
        8_030_261_248,
        4.207,
        4.500,
    ),
}


def of_mlc(sizes: dict[str, Any], name: str) -> dict[str, Any]:
    inner = {key: value for key, value in sizes.items() if key != "model_type"}
    return {"model_type": sizes["model_type"], "quantization": name, "model_config": inner}


@pytest.mark.parametrize(("sizes", "parameters", "gib", "bits"), MLC.values(), ids=MLC)
def test_the_name_that_mlc_gives_says_the_bytes(
    sizes: dict[str, Any], parameters: int, gib: float, bits: float
) -> None:
    config = of_mlc(sizes, "q4f16_1")
    spec = read_spec(config, "mlc-chat-config.json")
    assert (spec.parameters, spec.dtype) == (parameters, "float16")
    found = weights_by_config(config, spec, wide_bits=16)
    assert found is not None
    assert round(found.weights.nbytes / 2**30, 3) == gib
    assert round(found.weights.nbytes * 8 / parameters, 3) == bits


@pytest.mark.parametrize(
    ("name", "row", "table"),
    [
        # 17 groups of 32 (14 of 40) in words of 32 bits, with a scale each; a table that stays
        ("q4f16_0", 17 * (16 + 2), 17 * (16 + 2)),
        ("q4bf16_1", 17 * (16 + 2), 17 * (16 + 2)),
        ("q4f32_1", 17 * (16 + 4), 17 * (16 + 4)),
        ("q3f16_1", 14 * (16 + 2), 14 * (16 + 2)),
        ("q4f16_2", 17 * (16 + 2), None),
        ("q0f16", None, None),
    ],
)
def test_a_row_of_mlc_ends_with_a_whole_group(
    name: str, row: int | None, table: int | None
) -> None:
    scheme = scheme_of({"quantization": name, "model_config": {}})
    assert scheme is not None
    for kind, expected in (("mlp", row), ("embedding", table), ("router", None), ("tower", None)):
        form = scheme.choose(Module("layers.0.x", kind, "x", 2, 530), ())  # type: ignore[arg-type]
        assert (None if form is None else form.nbytes(2, 530)) == (expected and 2 * expected)


@pytest.mark.parametrize("name", ["q4f16_ft", "q4f16_autoawq", "e4m3_e4m3_f16", "q0f16_1", "q4f16"])
def test_another_name_of_mlc_is_refused_by_it(name: str) -> None:
    with pytest.raises(UnknownFormatError, match=f"MLC LLM has stored it as '{name}'"):
        scheme_of({"quantization": name, "model_config": {}})


GROUPS = {"bits": 4, "group_size": 64}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"quantization": GROUPS}, "mlx"),
        ({"quantization": GROUPS, "quantization_config": GROUPS}, "mlx"),
        ({"quantization_config": GROUPS}, "no quant_method, taken for MLX's"),
        (
            {"quantization_config": {**GROUPS, "model.layers.0.mlp": GROUPS, "mode": "affine"}},
            "no quant_method, taken for MLX's",
        ),
        ({"quantization_config": {**GROUPS, "quant_method": "mlx"}}, "mlx"),
    ],
)
def test_what_names_no_method_is_said_to_be_taken_for_mlx(
    config: dict[str, Any], name: str
) -> None:
    scheme = scheme_of(config)
    assert scheme is not None
    assert scheme.name == name


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"desc_act": False, "sym": True, "damp_percent": 0.01}, "desc_act, sym, damp_percent"),
        ({"zero_point": True, "version": "GEMM"}, "zero_point, version"),
        (
            {"data_type": "int", "sym": True, "autoround_version": "0.4"},
            "data_type, sym, autoround",
        ),
    ],
)
def test_keys_of_other_tools_beside_a_width_are_not_taken_for_mlx(
    more: dict[str, Any], named: str
) -> None:
    with pytest.raises(
        UnknownFormatError, match=rf"no quant_method.* MLX does not write \({named}"
    ):
        scheme_of({"quantization_config": {**GROUPS, **more}})


@pytest.mark.parametrize(
    ("nbits", "group_size", "saved"),
    [(4, 64, 405_573), (8, 128, 743_493), (2, 16, 360_517), (1, 64, 135_237), (3, 64, 333_637)],
)
def test_a_matrix_of_hqq(nbits: int, group_size: int, saved: int) -> None:
    """The state of hqq 0.2.8's HQQLinear of [1408, 512] in bfloat16; its words of ten 3-bit codes
    are padded by rows of groups."""
    weights = {"nbits": nbits, "group_size": group_size}
    found = of_matrix(hqq_scheme({"quant_config": {"weight_quant_params": weights}}, {}))
    assert found == pytest.approx(saved, abs=256 if nbits == 3 else 0)


@pytest.mark.parametrize(
    ("bits", "indexed", "saved"),
    [
        *((2, True, 194_944), (3, True, 285_760), (4, True, 376_576), (8, True, 739_840)),
        (4, False, 374_528),
    ],
)
def test_a_matrix_of_gptq_and_awq(bits: int, indexed: bool, saved: int) -> None:
    """The states of AutoGPTQ 0.7.1's QuantLinear and, without an index, of AutoAWQ 0.2.9's
    WQLinear_GEMM, of [1408, 512] in groups of 128."""
    assert gptq(bits, 128, indexed=indexed).nbytes(1408, 512) == saved


def test_gptq_has_zero_points_and_an_index() -> None:
    """AutoGPTQ's qweight [in / 8, out], scales and qzeros by group, g_idx by input, of int32."""
    codes, groups = 512 * 1408 // 2, 512 // 128
    assert gptq(4, 128).nbytes(1408, 512) == codes + groups * (2 * 1408 + 1408 // 2) + 4 * 512
    assert gptq(4, 128, indexed=False).nbytes(1408, 512) == codes + groups * (2 * 1408 + 704)
    assert gptq(3, 128, indexed=False).nbytes(1408, 512) == 512 * 1408 * 3 // 8 + groups * (
        2 * 1408 + 528
    )
    assert grouped(8, None).nbytes(1408, 512) == 512 * 1408 + 2 * 1408


INT4 = {"quant_method": "awq", "bits": 4, "group_size": 128}


def test_modules_that_stay_are_16_bit() -> None:
    whole = nbytes(INT4)
    four_and_scales = (4 + (16 + 4) / 128) / 8
    assert whole == WIDE + 2 * (ATTENTION + MLPS) * four_and_scales
    kept = nbytes({**INT4, "modules_to_not_convert": ["self_attn"]})
    assert kept == WIDE + 2 * (2 * ATTENTION + MLPS * four_and_scales)
    first = nbytes({**INT4, "modules_to_not_convert": ["model.layers.0"]})
    assert first == WIDE + (ATTENTION + MLPS) * (2 + four_and_scales)
    assert nbytes({**INT4, "modules_to_not_convert": None}) == whole


@pytest.mark.parametrize(
    "ignore",
    [
        ["lm_head", "re:.*self_attn.*"],
        ["lm_head", r"re:model\.layers\.\d+\.self_attn\.(q|k|v|o)_proj$"],
        ["lm_head", *(f"model.layers.{i}.self_attn.{p}_proj" for i in (0, 1) for p in "qkvo")],
    ],
)
def test_lists_of_compressed_tensors(ignore: list[str]) -> None:
    """Int4 in groups of 128: 16-bit scales, and the shape of each matrix as two int64."""
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128, "type": "int"}}
    settings = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ignore}
    found = nbytes({**settings, "config_groups": {"group_0": group}})
    assert found == WIDE + 2 * (2 * ATTENTION + MLPS * (4 + 16 / 128) / 8 + 3 * 16)


def test_groups_of_compressed_tensors_have_targets() -> None:
    """8 bit for attention, 4 for the rest, by name before class."""
    groups = {
        "by_class": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128}},
        "by_name": {
            "targets": ["re:.*self_attn.*"],
            "format": "int-quantized",
            "weights": {"num_bits": 8, "strategy": "channel"},
        },
    }
    settings = {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
    found = nbytes({**settings, "config_groups": groups})
    scales = 2 * (512 + 512 + 128 + 128)
    mlps = MLPS * (4 + 16 / 128) / 8 + 3 * 16
    assert found == WIDE + 2 * (ATTENTION + scales + mlps)


@pytest.mark.parametrize("target", ["Embedding", "re:.*embed_tokens", "model.embed_tokens"])
def test_groups_of_compressed_tensors_may_take_embeddings(target: str) -> None:
    """8 bit with a 16-bit scale a row, of 1,000 rows; left alone where the class is no target."""
    weights = {"num_bits": 8, "strategy": "channel", "type": "int"}
    settings = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    left: dict[str, Any] = {**settings, "ignore": ["lm_head"]}
    one = nbytes({**left, "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}})
    groups = {"g": {"targets": ["Linear", target], "weights": weights}}
    assert one - nbytes({**left, "config_groups": groups}) == 1000 * 512 - 2 * 1000
    kept = {**settings, "ignore": ["lm_head", "re:.*embed_tokens"], "config_groups": groups}
    assert nbytes(kept) == one


def test_gptq_has_rules_by_expression() -> None:
    """GPTQModel's `dynamic`: attention as it is, the MLP's last matrix in 8 bit."""
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    rules = {r"-:.*self_attn\..*": {}, r"+:.*\.down_proj": {"bits": 8}}
    found = nbytes({**settings, "dynamic": rules})
    up, down = gptq(4, 128).nbytes(1408, 512), gptq(8, 128).nbytes(512, 1408)
    assert found == WIDE + 2 * (2 * ATTENTION + 2 * up + down)


def test_mlx_takes_embeddings_and_modules_of_their_own_width() -> None:
    """A 16-bit scale and bias per group; an entry by name has settings of its own, or is false."""
    tables, norms = 2 * 1000 * 512, 2 * 5 * 512
    four, eight = (4 + 32 / 64) / 8, (8 + 32 / 32) / 8
    settings = {"group_size": 64, "bits": 4}
    whole = 2 * (ATTENTION + MLPS) + tables
    assert nbytes({}, quantization=settings) == whole * four + norms
    assert nbytes(settings, quantization=settings) == whole * four + norms
    by_name = {"model.layers.0.mlp": {"group_size": 32, "bits": 8}, "lm_head": False}
    found = nbytes({}, quantization={**settings, **by_name})
    assert found == (2 * ATTENTION + MLPS + tables / 2) * four + MLPS * eight + norms + tables


def test_auto_round_has_settings_by_module() -> None:
    settings = {
        **{"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True},
        **{"packing_format": "auto_round:auto_gptq", "block_name_to_quantize": "model.layers"},
        "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 16}},
    }
    one = gptq(4, 128, indexed=False).nbytes(1408, 512)
    assert nbytes(settings) == nbytes(INT4) + 2 * 1408 * 512 - one


def test_an_algorithm_without_a_method_is_model_optimizers() -> None:
    """fp8 with a float32 scale for the weights and one for the inputs of each matrix."""
    groups = {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}
    for settings in (
        {"quant_algo": "FP8", "config_groups": groups, "ignore": ["lm_head"]},
        {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    ):
        assert nbytes(settings) == WIDE + 2 * (ATTENTION + MLPS + 7 * 8)


def test_a_table_of_modules_mixes_formats() -> None:
    """NVFP4: 4 bits, a byte for 16, and two float32 (one where inputs stay wide)."""
    layers = {f"model.layers.{i}.mlp.{p}_proj" for i in (0, 1) for p in ("gate", "up", "down")}
    table = {name: {"quant_algo": "NVFP4", "group_size": 16} for name in layers}
    table["model.layers.0.self_attn"] = {"quant_algo": "FP8"}
    found = nbytes(
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": table}
    )
    mlps = MLPS * (4 + 8 / 16) / 8 + 3 * 8
    assert found == WIDE + 2 * mlps + ATTENTION + 4 * 8 + 2 * ATTENTION


def test_a_table_of_modules_may_have_globs() -> None:
    table = {"model.layers.*.mlp*": {"quant_algo": "NVFP4", "group_size": 16}}
    table["model.layers.1.mlp.down_proj"] = {"quant_algo": "FP8"}
    found = nbytes(
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": table}
    )
    one = 1408 * 512
    fours, eight = 5 * (one * (4 + 8 / 16) / 8 + 8), one + 8
    assert found == WIDE + 4 * ATTENTION + fours + eight


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "of next year"}, "of next year"),
        ({"quant_method": "aqlm"}, "aqlm"),
        ({"some": "thing"}, "unnamed"),
        ({"quant_method": "gptq", "bits": "four"}, "bits 'four'"),
        ({"quant_method": "compressed-tensors", "config_groups": []}, "no config_groups"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "marlin-24",
                "config_groups": {"a": {"weights": {"num_bits": 4}}},
            },
            "marlin-24",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "FP3"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "without quantized_layers"),
        ({"quant_method": "torchao", "quant_type": "secret"}, "secret"),
        ({"quant_method": "quark"}, "Quark"),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "new"}, "new"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:(a+)+": {}}}, "(a+)+"),
    ],
)
def test_what_is_not_understood_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"config\.json") as caught:
        scheme_of({"quantization_config": settings})
    assert named in str(caught.value)


def test_an_expert_dtype_is_named_too() -> None:
    config = {"quantization_config": {"quant_method": "fp8"}, "expert_dtype": "fp2"}
    with pytest.raises(UnknownFormatError, match=r"expert_dtype is 'fp2'"):
        scheme_of(config)


@pytest.mark.parametrize("config", [{}, {"quantization_config": None}, {"quantization_config": {}}])
def test_nothing_is_quantised(config: dict[str, Any]) -> None:
    assert scheme_of(config) is None


@pytest.mark.parametrize("value", [5, True, {"a": 1}, [None]])
@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignore"])
def test_modules_that_are_no_list_of_names_are_refused(key: str, value: object) -> None:
    settings = {"quant_method": "mxfp4", key: value}
    with pytest.raises(InvalidConfigError, match=f"{key} is .*a list of names"):
        scheme_of({"quantization_config": settings})


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "re:(", "int4"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.sampled_from(SAVED + MORE_SETTINGS), st.data())
def test_settings_of_any_kind_are_read_or_refused(saved: dict[str, Any], data: Any) -> None:
    """Each value, at any depth, may be anything."""
    settings = json.loads(json.dumps(saved["quantization_config"]))
    holder = settings
    while True:
        key = data.draw(st.sampled_from(sorted(holder)))
        if not isinstance(holder[key], dict) or not holder[key] or data.draw(st.booleans()):
            break
        holder = holder[key]
    holder[key] = data.draw(ANY_JSON)
    with suppress(HeadcountError):
        assert nbytes(settings) > 0
