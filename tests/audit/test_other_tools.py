"""Configs that other tools write: read as the model that they describe, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.arch.read_config import read_config
from headcount.audit import audit_model
from headcount.model.errors import HeadcountError, UnsupportedModelError

# params.json of Meta and Mistral, and original/config.json of gpt-oss, as published.
LLAMA2_7B = {
    **{"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05},
    "vocab_size": -1,
}
LLAMA2_70B = {
    **{"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64},
    **{"n_kv_heads": 8, "n_layers": 80, "norm_eps": 1e-05, "vocab_size": -1},
}
LLAMA3_8B = {
    **{"dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32},
    **{"n_kv_heads": 8, "n_layers": 32, "norm_eps": 1e-05, "vocab_size": 128256},
}
LLAMA32_1B = {
    **{"dim": 2048, "ffn_dim_multiplier": 1.5, "multiple_of": 256, "n_heads": 32},
    **{"n_kv_heads": 8, "n_layers": 16, "vocab_size": 128256, "use_scaled_rope": True},
}
MISTRAL_7B = {
    **{"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32},
    **{"n_kv_heads": 8, "norm_eps": 1e-05, "sliding_window": 4096, "vocab_size": 32000},
}
MIXTRAL = {**MISTRAL_7B, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}
GPT_OSS: dict[str, Any] = {
    **{"num_hidden_layers": 36, "num_experts": 128, "experts_per_token": 4},
    **{"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880},
    **{"swiglu_limit": 7.0, "head_dim": 64, "num_attention_heads": 64},
    **{"num_key_value_heads": 8, "sliding_window": 128, "initial_context_length": 4096},
    **{"rope_theta": 150000, "rope_scaling_factor": 32.0},
}
BERT_BASE = {
    **{"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_size": 768},
    **{"intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12},
    **{"num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522},
}
QWEN_1B5 = {
    **{"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12},
    **{"num_hidden_layers": 28, "num_key_value_heads": 2, "vocab_size": 151936},
    "tie_word_embeddings": True,
}
MLC = {
    **{"version": "0.1.0", "model_type": "qwen2", "quantization": "q4f16_1"},
    **{"model_config": QWEN_1B5, "context_window_size": 32768},
}
# facebook/opt-66b by the names of another tool.
OPT_66B = {
    **{"model_type": "opt", "num_layers": 64, "n_head": 72, "hidden_dim": 9216},
    **{"vocab_size": 50272, "max_seq_len": 2048, "ffn_embed_dim": 36864},
}


@pytest.mark.parametrize(
    ("config", "total"),
    [  # as the Hub gives them for the same models in transformers' form
        pytest.param(LLAMA2_7B, 6_738_415_616, id="Llama 2 7B"),
        pytest.param(LLAMA2_70B, 68_976_648_192, id="Llama 2 70B"),
        pytest.param(LLAMA3_8B, 8_030_261_248, id="Llama 3 8B"),
        pytest.param(LLAMA32_1B, 1_235_814_400, id="Llama 3.2 1B"),
        pytest.param(MISTRAL_7B, 7_241_732_096, id="Mistral 7B"),
        pytest.param(MIXTRAL, 46_702_792_704, id="Mixtral 8x7B"),
        pytest.param(GPT_OSS, 116_829_156_672, id="gpt-oss-120b"),
        pytest.param(MLC, 1_543_714_304, id="Qwen2 1.5B of MLC"),
    ],
)
def test_they_are_read(config: dict[str, Any], total: int) -> None:
    reading = read_config(config, "params.json")
    assert reading.total() == (total, None)
    assert not reading.spec.assumed


def test_windows_are_those_of_the_file() -> None:
    """Mistral's class has a window of 4,096 by default; params.json of later models has none."""
    assert read_config(MISTRAL_7B, "p").spec.layers[0].mixers[0].window == 4096
    later = {key: value for key, value in MISTRAL_7B.items() if key != "sliding_window"}
    assert read_config(later, "p").spec.layers[0].mixers[0].window is None
    oss = read_config(GPT_OSS, "p").spec
    assert [layer.mixers[0].window for layer in oss.layers] == [128, None] * 18
    assert oss.max_position_embeddings == 131072


def test_googles_bert_config_is_that_of_an_encoder() -> None:
    reading = read_config(BERT_BASE, "bert_config.json")
    assert reading.spec.model_type == "bert"
    assert reading.spec.cache_bytes(tokens=9, bits=16) == 0
    with_albert = {**BERT_BASE, "embedding_size": 128}
    assert read_config(with_albert, "albert_config.json").spec.model_type == "albert"


@pytest.mark.parametrize(
    ("sizes", "total"),
    [  # safetensors totals on the Hub: gpt2-large, gpt-neo-125m and bloom-560m
        (("gpt2", 36, 20, 1280, 50257, 1024, 5120), 774_030_080),
        (("gpt_neo", 12, 12, 768, 50257, 2048, 3072), 125_198_592),
        (("bloom", 24, 16, 1024, 250880, None, 4096), 559_214_592),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_name_that_a_class_shares_with_another_tool(sizes: tuple[Any, ...], total: int) -> None:
    """`n_head` or `num_layers` is the class's own, and the rest goes by other names."""
    names = ("model_type", "num_layers", "n_head", "hidden_dim", "vocab_size", "max_seq_len")
    config = dict(zip((*names, "ffn_embed_dim"), sizes, strict=True))
    assert read_config(config, "config.json").total() == (total, None)


def test_other_names_of_the_sizes_of_a_class() -> None:
    """What transformers builds of facebook/opt-66b."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.OPTForCausalLM(
            transformers.OPTConfig(
                hidden_size=9216,
                num_hidden_layers=64,
                num_attention_heads=72,
                ffn_dim=36864,
                vocab_size=50272,
                max_position_embeddings=2048,
            )
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    reading = read_config(OPT_66B, "config.json")
    assert reading.total() == (count, None)
    assert (len(reading.spec.layers), reading.spec.layers[0].mixers[0].state_elements(1, 0)) == (
        64,
        2 * 9216,
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model": {"type": "phi3", "decoder": {"head_size": 96}}}, "genai_config.json"),
        (
            {"_class_name": "StableDiffusion3Pipeline", "_diffusers_version": "0.30.0"},
            "text_encoder/config.json",
        ),
        (
            {
                **{"_class_name": "FluxPipeline", "_diffusers_version": "0.30.0"},
                "text_encoder": ["transformers", "CLIPTextModel"],
                "text_encoder_2": ["transformers", "T5EncoderModel"],
                "tokenizer_2": ["transformers", "T5TokenizerFast"],
                "vae": ["diffusers", "AutoencoderKL"],
            },
            r"as text_encoder/config.json \(CLIPTextModel\) or text_encoder_2/config.json"
            r" \(T5EncoderModel\)$",
        ),
        ({**MISTRAL_7B, "vision_encoder": {"hidden_size": 1024}}, "vision encoder"),
        ({**MISTRAL_7B, "kv_lora_rank": 512}, "latent attention"),
        # Meta's later models: Llama 4 has experts and chunks, Llama 3.2 Vision crossing layers.
        (
            {**LLAMA3_8B, "moe_args": {"num_experts": 16}, "attention_chunk_size": 8192},
            r"not read from it \(attention_chunk_size, moe_args\): audit the config.json",
        ),
        ({**LLAMA3_8B, "vision_num_cross_attention_layers": 8}, "vision_num_cross_attention"),
        (
            {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8},
            r"the config of an adapter, .*\(org/base\)",
        ),
        (  # of mlx-lm
            {"model": "org/base", "fine_tune_type": "lora", "lora_parameters": {"rank": 8}},
            r"the config of an adapter, .*\(org/base\)",
        ),
        ({"medusa_num_heads": 5, "medusa_num_layers": 1}, "heads that draft"),
        ({"model_type": "mlp_speculator", "n_predict": 4}, "drafts with MLPs"),
        ({**MISTRAL_7B, "_sliding_window": [None, 4096] * 16}, "_sliding_window"),
    ],
    ids=str,
)
def test_those_that_do_not_say_enough_are_refused_by_name(
    config: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read_config(config, "some.json")


@pytest.mark.parametrize(
    "config",
    [OPT_66B, {"model_type": "qwen2", "model_config": {"hidden_size": 1536}}],
    ids=["other names", "defaults"],
)
def test_strict_refuses_sizes_that_the_class_would_not_read(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    path = tmp_path / "mlc-chat-config.json"
    path.write_text(json.dumps(config))
    assert "H418" in {finding.code for finding in audit_model(str(path)).findings}
    with pytest.raises(UnsupportedModelError, match="H418"):
        audit_model(str(path), strict=True)


@pytest.mark.parametrize("name", ["params.json", "mlc-chat-config.json", "model_index.json"])
def test_a_folder_without_a_config_names_the_file_of_the_other_tool(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text(json.dumps(MISTRAL_7B))
    with pytest.raises(HeadcountError, match=f"but {name}, which another tool wrote"):
        audit_model(str(tmp_path))


# params.json of mistralai/Mamba-Codestral-7B-v0.1.
CODESTRAL = {
    **{"dim": 4096, "n_layers": 64, "vocab_size": 32768, "n_groups": 8, "rms_norm": True},
    **{"residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 1},
    **{"tie_embeddings": False, "model_type": "mamba"},
}


def test_a_mamba_of_mistral_is_the_second_one(tmp_path: Path) -> None:
    """Its page counts 7.29 B, and Mamba2ForCausalLM of transformers 5.24 has as many."""
    (tmp_path / "params.json").write_text(json.dumps(CODESTRAL))
    audit = audit_model(str(tmp_path / "params.json"))
    assert audit.spec.parameters == 7_285_403_648
    assert {finding.severity for finding in audit.findings} <= {"note"}


# config.json of state-spaces/mamba-2.8b and state-spaces/mamba2-2.7b.
MAMBA_SSM = {
    **{"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True},
    **{"residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 8},
}
MAMBA2_SSM = {
    **{**MAMBA_SSM, "ssm_cfg": {"layer": "Mamba2"}, "pad_vocab_size_multiple": 16},
    **{"d_intermediate": 0, "attn_layer_idx": [], "attn_cfg": {}, "tie_embeddings": True},
}


@pytest.mark.parametrize(
    ("config", "total"),
    [
        pytest.param(MAMBA_SSM, 2_768_345_600, id="as state-spaces/mamba-2.8b-hf has"),
        # Mamba2ForCausalLM of transformers 5.24 with 80 heads of 64 and one group
        pytest.param(MAMBA2_SSM, 2_702_599_680, id="the second one"),
    ],
)
def test_a_config_of_mamba_ssm(config: dict[str, Any], total: int) -> None:
    reading = read_config(config, "config.json")
    assert reading.total() == (total, None)
    assert reading.spec.cache_bytes(tokens=9, bits=16) == reading.spec.cache_bytes(
        tokens=1, bits=16
    )


@pytest.mark.parametrize("more", [{"attn_layer_idx": [9, 18]}, {"d_intermediate": 64}])
def test_a_config_of_mamba_ssm_with_other_layers(more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match=r"a config of mamba_ssm with layers of"):
        read_config({**MAMBA2_SSM, **more}, "config.json")


@pytest.mark.parametrize(
    ("model_type", "cure"),
    [("bark", "headcount families"), ("colpali", "audit its vlm_config as a config.json")],
)
def test_a_type_that_is_not_described_is_refused_as_that(model_type: str, cure: str) -> None:
    """Of transformers, and neither recurrent nor hybrid."""
    with pytest.raises(UnsupportedModelError, match=f"transformers has a class for it.*{cure}"):
        read_config({"model_type": model_type}, "config.json")
