"""The bytes of quantised weights by the config, against the sizes of published checkpoints."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from config_specs import read_spec
from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError
from headcount.plan.devices import find_device
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.plan.weights import Weights

MakePlan = Callable[..., Plan]
# Bytes of all tensors: `metadata.total_size` of the published model.safetensors.index.json. Where
# the source of a figure is not the index itself it is said behind it.
PUBLISHED = {
    "gpt-oss-120b": 65_248_815_744,
    "gpt-oss-20b": 13_761_264_768,
    "kimi-k2": 1_029_173_256_720,
    "kimi-k2.5": 595_148_192_736,
    "deepseek-v3": 688_586_727_753,  # of the repository's weight files, headers and all
    "deepseek-r1": 688_586_727_753,
    "deepseek-v4-flash": 148.66 * 2**30,  # as the index is quoted, in GiB
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_estimates_are_those_of_published_checkpoints(
    plan: MakePlan, name: str, published: float
) -> None:
    weights = plan(name).weights
    assert weights.source == "quantised"
    assert weights.total_bytes == pytest.approx(published, rel=0.002)


@pytest.mark.parametrize("name", ["gpt-oss-120b", "gpt-oss-20b"])
def test_some_are_exact(plan: MakePlan, name: str) -> None:
    assert plan(name).weights.total_bytes == PUBLISHED[name]


def test_settings_of_the_language_model_leave_the_tower_wide(plan: MakePlan) -> None:
    """Kimi-K2.5 keeps them in text_config. What stays is 8 bytes a matrix: its weight_shape is
    int32, where compressed-tensors 0.20 writes int64, beside buffers of its routers."""
    difference = plan("kimi-k2.5").weights.total_bytes - PUBLISHED["kimi-k2.5"]
    assert difference == 60 * 384 * 3 * 8 - 60 * 384 * 4


def test_a_mixture_of_experts_in_fp4_takes_under_a_tebibyte(plan: MakePlan) -> None:
    """DeepSeek-V4-Pro: 1.55 T parameters in 4.25 bit, the rest in 8 and 16."""
    assert plan("deepseek-v4-pro").weights.total_bytes == pytest.approx(0.8 * 2**40, rel=0.03)


def test_awq_of_a_70b_is_the_published_file(plan: MakePlan) -> None:
    """`total_size` of a published index of 80 layers, packed by AWQ in groups of 128."""
    assert plan("llama-3.1-70b", dtype="awq").weights.total_bytes == 39_767_785_472


# A config that MLX wrote: `quantization` alone, 4 bit in groups of 64, and its index's total_size.
MLX_14B = {
    **{"model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 17408},
    **{"num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8},
    **{"head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False},
    "quantization": {"group_size": 64, "bits": 4},
}


def test_the_key_of_mlx_is_read() -> None:
    both = {**MLX_14B, "quantization_config": MLX_14B["quantization"]}
    for config in (MLX_14B, both):
        assert weights_of(config).total_bytes == 8_307_783_680


# A conversion by MLX of a model with a layer that predicts further tokens: which mlx-lm leaves out.
MLX_27B: dict[str, Any] = {
    **{"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]},
    "text_config": {
        **{"model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408},
        **{"num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4},
        **{"head_dim": 256, "attn_output_gate": True, "full_attention_interval": 4},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128},
        **{"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320},
        **{"mtp_num_hidden_layers": 1, "tie_word_embeddings": False, "dtype": "bfloat16"},
    },
    "vision_config": {
        **{"model_type": "qwen3_5", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304},
        **{"num_heads": 16, "out_hidden_size": 5120, "num_position_embeddings": 2304},
        **{"patch_size": 16, "temporal_patch_size": 2, "spatial_merge_size": 2, "in_channels": 3},
        "deepstack_visual_indexes": [],
    },
    "tie_word_embeddings": False,
}


def test_what_mlx_wrote_has_no_layers_that_predict() -> None:
    """`total_size` of the index of a Qwen3.5-27B that MLX wrote, tables, the last matrices of the
    linear attention and eight MLPs in 8 bit, without the file of its predicting layer."""
    narrow, wide = {"bits": 4, "group_size": 32, "mode": "affine"}, {"bits": 8, "group_size": 64}
    names = ["lm_head", "model.embed_tokens", *(f"model.layers.{i}.mlp" for i in range(8))]
    names += [f"model.layers.{i}.linear_attn.out_proj" for i in range(64)]
    quantization = {**narrow, **{f"language_model.{name}": wide for name in names}}
    config = {**MLX_27B, "quantization": quantization, "quantization_config": quantization}
    assert weights_of(config).total_bytes == 20_444_027_360


def test_what_a_library_loaded_and_saved_has_no_layers_that_predict() -> None:
    """transformers builds none, so bitsandbytes does not save any; files of fp8 hold them."""
    without = {**MLX_27B, "text_config": {**MLX_27B["text_config"], "mtp_num_hidden_layers": 0}}
    for settings, held in (
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, False),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, True),
    ):
        found = [
            weights_of({**config, "quantization_config": settings}).total_bytes
            for config in (MLX_27B, without)
        ]
        assert (found[0] > found[1]) is held


# The second text encoder of a FLUX.1 that diffusers loaded with bitsandbytes.
T5_XXL = {
    **{"model_type": "t5", "architectures": ["T5EncoderModel"], "d_model": 4096, "d_ff": 10240},
    **{"d_kv": 64, "num_heads": 64, "num_layers": 24, "feed_forward_proj": "gated-gelu"},
    **{"vocab_size": 32128, "is_encoder_decoder": True, "torch_dtype": "float16"},
}


def test_t5_keeps_its_last_matrices_in_float32() -> None:
    """`total_size` of its index, but for some bytes that describe each matrix."""
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    found = weights_of({**T5_XXL, "quantization_config": settings}).total_bytes
    assert found == pytest.approx(6_328_582_592, rel=1e-4)


@pytest.mark.parametrize(
    "settings", [{"quant_method": "eetq"}, {"quant_method": "quanto"}], ids=str
)
def test_other_libraries_leave_them_as_they_are(settings: dict[str, Any]) -> None:
    found = weights_of({**T5_XXL, "quantization_config": settings}).total_bytes
    narrow, wide = 24 * (4 * 4096 * 4096 + 2 * 4096 * 10240), 24 * 4096 * 10240 + 32128 * 4096
    assert found == pytest.approx(narrow + 2 * wide, rel=0.001)


def test_experts_may_have_a_format_of_their_own() -> None:
    """NVFP4 (4 bit, a byte for 16, two float32 a matrix) for experts, fp8 in blocks besides."""
    sizes = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
    config = {**SMALL, **sizes, "model_type": "qwen3_moe", "head_dim": 16}
    fp8 = {"quant_method": "fp8", "weight_block_size": [64, 64]}
    mixed = {"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"}
    uniform = weights_of({**config, "quantization_config": fp8}).total_bytes
    found = weights_of({**config, "quantization_config": {**fp8, **mixed}}).total_bytes
    matrices, elements = 2 * 4 * 3, 2 * 4 * 3 * 64 * 64
    assert uniform - found == elements + matrices * 4 - (elements * 4.5 / 8 + matrices * 8)


def test_a_format_that_is_not_understood_is_named(plan: MakePlan) -> None:
    config = {**SMALL, "quantization_config": {"quant_method": "of next year"}}
    with pytest.raises(HeadcountError, match=r"of the kind 'of next year'.*--dtype"):
        weights_of(config)
    assert weights_of(config, dtype="fp16").source == "parameters"
    assert weights_of(config, dtype="q4_k_m").source == "quantised"
    given = PlanRequest(engine="vllm", kv_memory=2**30)
    assert plan_model(model_of(config), given).weights is None


def test_without_a_body_the_layers_tell_what_is_attention() -> None:
    """Of a type that nothing describes the count is given: attention, tables, and the rest as
    MLPs."""
    settings = {"quant_method": "awq", "bits": 4, "group_size": 64}
    config = {**SMALL, "model_type": "of_next_year", "quantization_config": settings}
    spec = replace(read_config(config, "config.json").spec, parameters=100_000)
    model = PlannedModel(model_id="model", spec=spec, config=config)
    narrow = 100_000 - 2 * TABLE
    weights = plan_model(model, PlanRequest()).weights
    assert weights is not None
    expected = 4 * TABLE + narrow * (4 + 20 / 64) / 8
    assert weights.total_bytes == pytest.approx(expected, abs=2 * 64)


@pytest.mark.parametrize("name", ["gptq", "awq", "nf4", "nvfp4", "mxfp4", "Q4_K_M", "q8_0"])
def test_names_of_formats_are_dtypes(plan: MakePlan, name: str) -> None:
    """Llama-3-8B in 4 bits is 5.3 to 5.7 GiB with its tables in 16, 4.6 with them in 4 to 6."""
    found = plan("llama-3-8b", dtype=name)
    low, high = {"Q4_K_M": (4.5, 4.7), "q8_0": (7.9, 8.0)}.get(name, (5.3, 5.7))
    assert low * 2**30 < found.weights.total_bytes < high * 2**30
    assert found.workload.compute_dtype == "bfloat16"
    engine = plan("llama-3-8b", dtype=name, engine="vllm", device=find_device("h100"))
    assert engine.weights.total_bytes == found.weights.total_bytes


def weights_of(config: dict[str, Any], **request: Any) -> Weights:
    weights = plan_model(model_of(config), PlanRequest(**request)).weights
    assert weights is not None
    return weights


def model_of(config: dict[str, Any]) -> PlannedModel:
    return PlannedModel(model_id="model", spec=read_spec(config, "config.json"), config=config)


SMALL = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 48, "vocab_size": 100},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
}


def planned(*, tied: bool, **quantisation: Any) -> Weights:
    """Of a Llama with a table of 100 x 64 and weights of 8 bits, in one block each."""
    settings = {"quant_method": "fp8", "weight_block_size": [64, 64], **quantisation}
    return weights_of({**SMALL, "tie_word_embeddings": tied, "quantization_config": settings})


ATTENTION = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64)
MLPS = 2 * 3 * 64 * 48
NORMS = 2 * 5 * 64  # of 16 bits
SCALES = 2 * 3 * 4, 2 * 4 * 4  # a float32 for each matrix of the MLPs, and of attention
TABLE = 100 * 64


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_a_table_stays_at_16_bits_and_a_tied_one_is_there_once(tied: bool, tables: int) -> None:
    weights = planned(tied=tied)
    assert weights.total_bytes == ATTENTION + MLPS + NORMS + sum(SCALES) + tables * 2 * TABLE
    assert weights.embedding_bytes == (0 if tied else 2 * TABLE)  # a tied one is read as the head


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_so_does_attention_that_is_not_converted(tied: bool, tables: int) -> None:
    weights = planned(tied=tied, modules_to_not_convert=["self_attn"])
    assert weights.total_bytes == 2 * ATTENTION + MLPS + NORMS + SCALES[0] + tables * 2 * TABLE
