"""The parameters that a config alone gives are those of the model that transformers builds."""

from typing import Any

import pytest

from config_specs import read_spec
from headcount.arch.body.towers import Wrapper
from headcount.arch.body.uncounted import UncountedError
from headcount.arch.class_defaults import class_defaults
from headcount.arch.nested import config_view
from headcount.arch.parameters import idle_parameters, other_parameters
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES, architecture_of
from headcount.model.errors import InvalidConfigError
from headcount.sources.catalogue import catalogue, read_entry
from truth_record import key_of, recorded

CONFIGS = {row.id: read_entry(row) for row in catalogue()}
# Models without a total, and why.
NOT_COUNTED = {
    "google/gemma-3n-E2B-it": "its vision tower is a model of the library timm",
    "google/gemma-3n-E4B-it": "its vision tower is a model of the library timm",
}
# Remote code, which transformers cannot build: what their model pages count.
PUBLISHED = {
    "deepseek-ai/deepseek-moe-16b-base": 16_375_728_128,
    # DeciLM's MLPs are 2/3 ffn_mult * hidden_size wide, rounded up to 256, in llama.cpp's converter
    # too (DeciModel in ggml-org/llama.cpp)
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
    # with a layer for multi-token prediction, of the shape that vLLM's mimo_mtp.py loads: three
    # norms, a projection of two hidden states to one, and a whole layer
    "XiaomiMiMo/MiMo-7B-Base": 7_833_409_536,
    # less the rotary buffers that the file holds: 64 frequencies in each of 32 layers
    "microsoft/Phi-3-small-8k-instruct": 7_392_274_432 - 64 * 32,
}


def count(config: dict[str, Any]) -> tuple[int | None, int | None]:
    """All parameters, and those of experts that a token does not visit."""
    reading = read_config(config, "config.json")
    spec = reading.spec
    idle = idle_parameters(reading.view, spec.model_type, spec.layers, reading.text)
    return reading.parameters(), idle


def total(config: dict[str, Any]) -> int | None:
    return count(config)[0]


def test_zero_experts_hold_nothing() -> None:
    """meituan-longcat/LongCat-Flash-Chat, "560 billion": its files hold 561,862,880,256, of which a
    layer that predicts a further token has an embedding of its own, attention, an MLP, the norms
    of a layer and what joins token and state; and its routers correct each choice by a buffer."""
    hidden, heads = 6144, 64
    attention = hidden * 1536 + 1536 + 1536 * heads * 192 + hidden * (512 + 64) + 512
    attention += 512 * heads * (128 + 128) + heads * 128 * hidden
    predicting = 131072 * hidden + attention + 3 * hidden * 12288 + 2 * hidden * hidden + 5 * hidden
    corrections = 28 * (512 + 256)
    config = {
        **{"model_type": "longcat_flash", "attention_method": "MLA", "hidden_size": hidden},
        **{"ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "num_layers": 28},
        **{"num_attention_heads": heads, "kv_lora_rank": 512, "q_lora_rank": 1536},
        **{"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
        **{"n_routed_experts": 512, "zero_expert_num": 256, "moe_topk": 12},
        **{"vocab_size": 131072, "tie_word_embeddings": False},
    }
    assert read_config(config, "config.json").total() == (
        561_862_880_256 - predicting - corrections,
        None,
    )


def test_every_type_of_the_catalogue_has_a_row() -> None:
    """Others may have none: their totals are unknown."""
    types = {row.model_type for row in catalogue() if row.model_type}
    found = {name: architecture_of(name) for name in types}
    assert {name for name, one in found.items() if one is None or one.body is None} == {"gemma3n"}


def test_a_class_with_a_context_length_reads_no_other_name_of_it() -> None:
    """As transformers 5.24 builds BertModel of these sizes: its table has 512 positions, which only
    its own name makes 1,024."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = {**sizes, "model_type": "bert", "vocab_size": 99, "intermediate_size": 128}
    config["architectures"] = ["BertModel"]
    assert total(config) == total({**config, "n_positions": 1024}) == 110_464
    assert total({**config, "max_position_embeddings": 1024}) == 143_232


@pytest.mark.parametrize("model", [name for name in CONFIGS if CONFIGS[name].built_parameters])
def test_catalogue_model_counts_what_transformers_built(model: str) -> None:
    expected = None if model in NOT_COUNTED else CONFIGS[model].built_parameters
    assert total(CONFIGS[model].config) == expected


@pytest.mark.parametrize("model", NOT_COUNTED)
def test_a_total_that_cannot_be_known_is_explained(model: str) -> None:
    _, why = read_config(CONFIGS[model].config, "config.json").total()
    assert why is not None and why.startswith(NOT_COUNTED[model])
    spec = read_spec(CONFIGS[model].config, "config.json")
    assert (spec.parameters, spec.parameters_source, spec.parameters_unknown) == (None, None, why)


@pytest.mark.parametrize("model", PUBLISHED)
def test_remote_code_counts_what_is_published(model: str) -> None:
    assert total(CONFIGS[model].config) == PUBLISHED[model]


# From the config.json of apple/OpenELM-270M.
OPENELM = {
    "model_type": "openelm",
    "architectures": ["OpenELMForCausalLM"],
    "model_dim": 1280,
    "head_dim": 64,
    "num_transformer_layers": 16,
    "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4,
    "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4,
    "ffn_multipliers": [
        *(0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13),
        *(2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0),
    ],
    "ffn_dim_divisor": 256,
    "normalize_qk_projections": True,
    "share_input_output_layers": True,
    "vocab_size": 32000,
    "max_context_length": 2048,
}


def test_openelm_counts_what_its_model_page_does() -> None:
    assert total(OPENELM) == 271_527_168


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_internlm3_has_the_biases_of_its_modelling_code(qkv_bias: bool, bias: bool) -> None:
    """modeling_internlm3.py of internlm/internlm3-8b-instruct: `qkv_bias` is that of q, k and v,
    `bias` that of o and of all three projections of the MLP. transformers' own class wants both
    alike."""
    hidden, width, heads, kv_heads, head_dim, layers, vocab = 64, 48, 4, 2, 24, 3, 100
    config = {
        **{"model_type": "internlm3", "architectures": ["InternLM3ForCausalLM"]},
        **{"hidden_size": hidden, "intermediate_size": width, "num_attention_heads": heads},
        **{"num_key_value_heads": kv_heads, "head_dim": head_dim, "num_hidden_layers": layers},
        **{"vocab_size": vocab, "tie_word_embeddings": False, "qkv_bias": qkv_bias, "bias": bias},
    }
    rows = (heads + 2 * kv_heads) * head_dim
    attention = rows * (hidden + qkv_bias) + hidden * (heads * head_dim + bias)
    mlp = 2 * width * (hidden + bias) + hidden * (width + bias)
    norms = 2 * hidden
    assert total(config) == layers * (attention + mlp + norms) + hidden + 2 * vocab * hidden


def test_internlm3_reaches_its_published_size() -> None:
    """8.8 billion: internlm3-8b-instruct without biases."""
    assert total(CONFIGS["internlm/internlm3-8b-instruct"].config) == 8_804_241_408


def test_the_first_phi_files_count_as_the_later_ones() -> None:
    new = CONFIGS["microsoft/phi-1_5"]
    names = {"n_embd": 2048, "n_layer": 24, "n_head": 32, "n_inner": None, "n_positions": 2048}
    old = {"model_type": "phi-msft", "architectures": ["PhiForCausalLM"], "vocab_size": 51200}
    assert total({**old, **names, "tie_word_embeddings": False}) == new.built_parameters


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", 12.9),  # Mixtral of Experts, arXiv 2401.04088
        ("databricks/dbrx-base", 36),  # Databricks' announcement of DBRX
        ("deepseek-ai/DeepSeek-V2", 21),  # arXiv 2405.04434
        ("Qwen/Qwen3-235B-A22B", 22),  # Qwen3 Technical Report, arXiv 2505.09388
        ("Qwen/Qwen2-57B-A14B", 14),  # Qwen2 Technical Report, arXiv 2407.10671
        ("tencent/Hunyuan-A13B-Instruct", 13),  # its model card
    ],
)
def test_active_parameters_round_to_the_published_ones(model: str, billions: float) -> None:
    everything, idle = count(CONFIGS[model].config)
    assert everything is not None and idle is not None
    assert everything - idle == pytest.approx(billions * 1e9, rel=0.03)


def test_a_model_without_experts_has_no_idle_parameters() -> None:
    assert count(CONFIGS["meta-llama/Meta-Llama-3-8B"].config)[1] == 0


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("meta-llama/Meta-Llama-3-8B", "LlamaForRewards"),
        ("google-bert/bert-base-uncased", "BertForColBERT"),
        ("openai-community/gpt2", "GPT2DoubleHeadsModel"),
    ],
)
def test_a_class_whose_head_is_unknown_has_no_total(model: str, architecture: str) -> None:
    assert total({**CONFIGS[model].config, "architectures": [architecture]}) is None


@pytest.mark.parametrize(
    ("model", "name", "missing"),
    [
        ("meta-llama/Meta-Llama-3-8B", "LlamaModel", 128256 * 4096),
        ("openai-community/gpt2", "GPT2Model", 0),
    ],
)
def test_a_bare_model_has_no_head(model: str, name: str, missing: int) -> None:
    """GPT-2's is tied, so nothing is missing."""
    config = CONFIGS[model].config
    bare = total({**config, "architectures": [name]})
    assert bare is not None and bare + missing == CONFIGS[model].built_parameters


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("meta-llama/Meta-Llama-3-8B", "intermediate_size", "14336"),
        ("meta-llama/Meta-Llama-3-8B", "vocab_size", -1),
        ("mistralai/Mixtral-8x7B-v0.1", "num_local_experts", 0),
        ("google/gemma-3-4b-it", "vision_config", {"patch_size": []}),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "block_configs", [{"ffn": {}}] * 80),
        ("google/gemma-3-4b-it", "architectures", "Gemma3ForConditionalGeneration"),
    ],
)
def test_an_impossible_value_is_named(model: str, key: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError, match=r"config\.json"):
        count({**CONFIGS[model].config, key: value})


def test_a_part_of_another_kind_is_not_guessed() -> None:
    config = CONFIGS["mistralai/Ministral-3-3B-Instruct-2512"].config
    tower = {**config["vision_config"], "model_type": "siglip_vision_model"}
    assert total({**config, "vision_config": tower}) is None


def test_step_holds_what_the_index_of_its_nvfp4_files_counts() -> None:
    """stepfun-ai/Step-3.7-Flash-NVFP4: total_parameters is 103,810,330,432, two weights of an
    expert in one byte, and a bias of the router for each of them."""
    everything = total(CONFIGS["stepfun-ai/Step-3.7-Flash"].config)
    experts, width, hidden = 42 * 288, 1280, 4096
    assert everything == 103_810_330_432 - experts + experts * 3 * width * hidden // 2


# LiquidAI/LFM2-350M, as its file is written but for keys that say nothing of sizes.
LFM2_350M: dict[str, Any] = {
    **{"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "hidden_size": 1024},
    **{"block_auto_adjust_ff_dim": True, "block_dim": 1024, "block_ff_dim": 6656},
    **{"block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0, "block_multiple_of": 256},
    **{"block_out_init_scale": 1.0, "conv_L_cache": 3, "conv_bias": False, "conv_dim": 1024},
    **{"conv_dim_out": 1024, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_attention_heads": 16},
    **{"num_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 65536},
    **{"max_position_embeddings": 128000, "torch_dtype": "bfloat16"},
}


def test_a_published_lfm2_has_the_width_that_its_own_key_gives() -> None:
    """The model's page counts 354,483,968, as transformers 5.24 does."""
    assert total(LFM2_350M) == 354_483_968
    assert total({**LFM2_350M, "tie_embedding": False}) == 354_483_968 + 65536 * 1024


@pytest.mark.parametrize("model_type", ["deepseek_v32", "glm_moe_dsa"])
def test_another_name_of_the_routed_experts_is_read(model_type: str) -> None:
    """Their classes take `num_experts` for `n_routed_experts`."""
    config = {"model_type": model_type, "num_hidden_layers": 4, "num_experts_per_tok": 2}
    assert total({**config, "num_experts": 16}) == total({**config, "n_routed_experts": 16})


def test_the_dense_layers_of_inkling_are_those_that_its_file_counts() -> None:
    """InklingTextConfig of transformers 5.24; with dense_intermediate_size it swaps the widths."""
    config = {"model_type": "inkling_text", "num_hidden_layers": 4}
    listed = {**config, "mlp_layer_types": ["dense", "dense", "sparse", "sparse"]}
    assert total({**config, "dense_mlp_idx": 2}) == total(listed)
    swapped = {**config, "intermediate_size": 512, "dense_intermediate_size": 768}
    fields = {**config, "intermediate_size": 768, "moe_intermediate_size": 512}
    assert total(swapped) == total(fields)


def test_a_tower_is_fixed_where_its_class_reads_no_type_of_it() -> None:
    """transformers looks at the model_type of a nested config only where the wrapper's class leaves
    its class open (AutoConfig)."""
    transformers = pytest.importorskip("transformers")
    mapping = transformers.CONFIG_MAPPING
    said, true = {}, {}
    for name, one in ARCHITECTURES.items():
        for part in one.body.parts if isinstance(one.body, Wrapper) and name in mapping else ():
            of_class = mapping[name].sub_configs_defaults[part.key].config_class
            said[name, part.key] = part.fixed
            true[name, part.key] = issubclass(of_class, transformers.PreTrainedConfig)
    assert len(said) > 40
    assert said == true


def test_a_tower_of_its_own_class_is_counted_whatever_the_file_calls_it() -> None:
    """As MiniMax-M3's file calls it CLIP, and Kimi-K2.5's nothing."""
    config = CONFIGS["moonshotai/Kimi-K2.5"].config
    tower = {**config["vision_config"], "model_type": "clip_vision_model"}
    assert total({**config, "vision_config": tower}) == total(config) is not None


def test_a_type_without_a_row_has_no_total() -> None:
    config = CONFIGS["meta-llama/Meta-Llama-3-8B"].config
    view = config_view(config, "llama", ARCHITECTURES["llama"], "config.json")
    with pytest.raises(UncountedError, match="no_such_type"):
        other_parameters(view, "no_such_type", (), tied=True)
    assert idle_parameters(view, "no_such_type", ()) is None


def test_every_type_that_transformers_has_is_recorded() -> None:
    """Its totals are compared in tests/audit/test_truth.py."""
    counted = {name for name, one in ARCHITECTURES.items() if one.body is not None}
    built = {name for name in counted if class_defaults(name) is not None}
    assert built - {key_of(line) for line in recorded("totals")} == set()


def test_granite_without_experts_is_its_shared_mlps() -> None:
    """What GraniteMoeHybridForCausalLM holds, as Granite 4.0 H Micro is written."""
    config = {
        "model_type": "granitemoehybrid",
        **{"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 80},
        **{"hidden_size": 64, "vocab_size": 100, "intermediate_size": 48},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3},
        **{"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1},
        **{"layer_types": ["mamba", "attention", "mamba"], "tie_word_embeddings": False},
    }
    assert count(config) == (125_584, 0)
    other = {**config, "model_type": "granitemoeshared", "layer_types": None}
    with pytest.raises(InvalidConfigError, match="num_local_experts is 0"):
        total(other)


# Hunyuan-Large, "389 billion parameters" (arXiv 2411.02265). Its config.json was not seen: widths,
# heads, experts and what shares keys are those of its public training script (train/train.sh beside
# models/modeling_hunyuan.py of Tencent-Hunyuan-Large), the rest is what makes up the published sum.
HUNYUAN_LARGE: dict[str, Any] = {
    **{"model_type": "hunyuan", "architectures": ["HunYuanForCausalLM"], "hidden_size": 6400},
    **{"intermediate_size": 18304, "num_hidden_layers": 64, "num_attention_heads": 80},
    **{"num_key_value_heads": 8, "attention_head_dim": 80, "vocab_size": 129024, "moe_topk": 1},
    **{"num_experts": 16, "num_shared_expert": 1, "use_mixed_mlp_moe": True, "use_qk_norm": True},
    **{"use_cla": True, "cla_share_factor": 2, "tie_word_embeddings": False},
    **{"attention_bias": False, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"},
}


def test_layers_that_share_keys_have_no_projections_for_them_and_cache_all_the_same() -> None:
    """HunYuanAttention of modeling_hunyuan.py, published with the weights, builds k_proj and v_proj
    in every second layer only; each layer updates the cache."""
    shared = read_spec(HUNYUAN_LARGE, "config.json")
    own = read_spec({**HUNYUAN_LARGE, "use_cla": False}, "config.json")
    assert shared.parameters is not None and own.parameters is not None
    assert own.parameters == 389_789_303_040
    assert own.parameters - shared.parameters == 32 * 2 * 6400 * 8 * 80 == 262_144_000
    assert shared.cache_bytes_per_token(bits=16) == 64 * 2 * 8 * 80 * 2
    assert [layer.parameters().k > 0 for layer in shared.layers] == [True, False] * 32
