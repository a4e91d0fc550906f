"""Rules on the config alone: a change that makes each speak, and near ones that do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.model.errors import HeadcountError
from headcount.report.report import Finding
from headcount.sources.catalogue import catalogue

Config = dict[str, Any]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MISTRAL = {"model_type": "mistral", "sliding_window": 32}
QWEN2 = {"model_type": "qwen2", "use_sliding_window": False}
COHERE2 = {"model_type": "cohere2", "sliding_window": 16, "eos_token_id": 1, "bos_token_id": 0}
PATTERN = ["sliding_attention", "sliding_attention", "full_attention"]
NONE_OF_LLAMA: Config = dict.fromkeys(LLAMA_CONFIG)
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64}


def audit(folder: Path, changes: Config, base: Config = LLAMA_CONFIG) -> tuple[Finding, ...]:
    """Findings on `base` with `changes`; a value of None leaves its key out, and another type the
    class of the base."""
    if "model_type" in changes:
        changes = {"architectures": None, **changes}
    config = {key: value for key, value in {**base, **changes}.items() if value is not None}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return audit_model(str(path)).findings


SPEAKS: list[tuple[str, str, Config]] = [
    ("H301", "note", {"auto_map": {"AutoConfig": "configuration_x.XConfig"}}),
    ("H301", "warning", {"model_type": "mimo", "auto_map": {"AutoConfig": "c.MiMoConfig"}}),
    ("H301", "note", {"vision": {"auto_map": {"AutoModel": "m.M"}}}),
    ("H303", "error", {"_attn_implementation": "someone/kernels"}),
    ("H303", "error", {"_attn_implementation_internal": "someone/kernels"}),
    ("H303", "error", {"inner": {"attn_implementation": "someone/kernels:attention"}}),
    ("H303", "warning", {"attn_implementation": "home_made"}),
    ("H305", "warning", {"trust_remote_code": True}),
    ("H305", "warning", {"a": {"b": {"trust_remote_code": True}}}),
    ("H401", "warning", {"head_dim": 7}),
    ("H402", "note", {"head_dim": 100}),
    ("H403", "note", {"head_dim": 512}),
    ("H404", "note", {"head_dim": 16}),
    ("H405", "note", {"model_type": "mistral", "num_key_value_heads": None,
                      "num_attention_heads": 16}),
    ("H406", "warning", {"model_type": "gptj", "num_key_value_heads": 2}),
    ("H406", "warning", {"model_type": "mpt", "attn_config": {"kv_n_heads": 2},
                         "num_key_value_heads": None}),
    *(("H406", "warning", {"num_key_value_heads": None, name: 2})  # a llama does not read it
      for name in ("n_kv_heads", "kv_n_heads", "num_query_groups", "num_kv")),
    ("H406", "warning", {"n_kv_heads": 4}),  # beside the number that it reads
    ("H406", "warning", {**GPT2, "num_key_value_heads": None,  # which this class does not read
                         "attention_head_type": "multiquery"}),
    ("H407", "warning", {"num_attention_heads": 8.0}),
    ("H411", "note", {**MISTRAL, "sliding_window": 64}),
    ("H412", "note", {**QWEN2, "sliding_window": 32}),
    ("H413", "warning", {**COHERE2, "layer_types": PATTERN, "sliding_window_pattern": 2}),
    ("H414", "note", {"model_type": "bloom", "num_key_value_heads": None,
                      "max_position_embeddings": None}),
    ("H415", "note", {"rope_scaling": YARN}),
    ("H415", "note", {"rope_parameters": {"full_attention": YARN}}),
    ("H416", "warning", {"rope_scaling": {**YARN, "factor": 2}}),
    ("H418", "warning", {"vocab_size": None, "num_hidden_layers": None}),
    *(("H418", "warning", {"model_type": model_type, "hidden_size": None, "num_layers": 2,
                           "num_hidden_layers": None, "num_attention_heads": None, "n_head": 4,
                           "intermediate_size": None, "hidden_dim": 32, "ffn_embed_dim": 64})
      for model_type in ("opt", "gpt2")),
    *(("H418", "warning", {size: None, name: 12}) for size, name in (
        ("num_hidden_layers", "num_layers"), ("num_hidden_layers", "n_layer"),
        ("num_hidden_layers", "num_hidden_layer"), ("hidden_size", "n_embd"),
        ("hidden_size", "hidden_dim"), ("num_attention_heads", "n_heads"), ("head_dim", "d_head"),
        ("intermediate_size", "ffn_hidden_size"), ("intermediate_size", "hidden_dim"),
        ("vocab_size", "n_vocab"), ("max_position_embeddings", "context_length"),
        ("max_position_embeddings", "n_positions"), ("num_key_value_heads", "gqa_groups"),
        ("num_hidden_layers", "depth_of_it"), ("vocab_size", "words"))),  # names that nobody has
    ("H418", "note", {"n_layers": 22}),  # beside the class's own
    ("H418", "warning", {"model_type": "mixtral", "n_routed_experts": 16}),
    ("H418", "warning", {"model_type": "mistral", "window_size": 16}),
    ("H418", "warning", {"model_type": "t5", "d_model": 64, "num_layers": 2, "num_heads": 4,
                         "head_dim": 16}),
    ("H418", "warning", {"model_type": "llava", "text_config": {"model_type": "llama",
                                                                "n_layers": 2}}),
    ("H418", "warning", {"model_type": "llava", "architectures": None, "text_config": LLAMA_CONFIG,
                         "vision_config": {"model_type": "clip_vision_model", "layers": 2}}),
    ("H419", "warning", {"visual": {"width": 64, "layers": 2}}),
    ("H421", "warning", {"model_type": "my_new", "architectures": None,
                         "num_key_value_heads": 8}),
    ("H421", "warning", {"model_type": "my_new", "architectures": ["MyForCausalLM"],
                         "sliding_window": 16}),
    ("H422", "warning", {"model_type": "git", "architectures": ["LlamaForCausalLM"]}),
    ("H422", "warning", {"model_type": "git", "architectures": ["Grok1ForCausalLM"]}),
    ("H422", "note", {"model_type": "qwen3", "architectures": ["ColQwen3Model"]}),
    ("H504", "warning", {"eos_token_id": 40}),
    ("H504", "warning", {"eos_token_id": [2, 99]}),
    ("H504", "warning", {"model_type": "moshi", "vocab_size": 32000, "bos_token_id": 32001}),
    ("H606", "note", {"dtype": None}),
    ("H607", "note", {"quantization_config": {"quant_method": "someones"}}),
]  # fmt: skip
SILENT: list[tuple[str, Config]] = [
    ("H301", {"auto_map": None}),
    ("H301", {"auto_map": "not an object"}),
    ("H301", {"auto_map": {"": "eagle3.Eagle3SpeculatorConfig"}}),  # which no auto class goes by
    ("H303", {"_attn_implementation": "flash_attention_2"}),
    ("H303", {"attn_implementation": 3}),
    ("H305", {"trust_remote_code": False}),
    ("H401", {"head_dim": 12}),
    ("H402", {"head_dim": 80}),
    ("H403", {"head_dim": 256}),
    ("H404", {"head_dim": 4}),
    ("H405", {"num_key_value_heads": None}),
    ("H406", {"model_type": "gptj", "num_key_value_heads": 8}),
    ("H406", {**GPT2, "num_key_value_heads": None}),
    ("H406", {**GPT2, "num_key_value_heads": None, "attention_head_type": "multihead"}),
    (
        "H406",
        {
            "model_type": "mpt",
            "num_key_value_heads": None,
            "attn_config": {"attn_type": "multiquery_attention"},
        },
    ),
    ("H406", {"model_type": "falcon", "num_key_value_heads": None, "multi_query": True}),
    ("H406", {"model_type": "gpt_bigcode", "num_key_value_heads": None, "multi_query": True}),
    # no class is known that ignores it
    ("H406", {"model_type": "my_new", "num_key_value_heads": None, "num_kv_heads": 4}),
    ("H407", {"rope_theta": 10000.0}),
    ("H411", MISTRAL),
    ("H411", {**MISTRAL, "max_position_embeddings": None}),
    ("H412", {**QWEN2, "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}),
    ("H412", {**MISTRAL, "sliding_window": None}),
    ("H412", QWEN2),  # its class has one by default, which the file does not give
    ("H413", {**COHERE2, "layer_types": PATTERN, "sliding_window_pattern": 3}),
    ("H414", {"model_type": "bert", "max_position_embeddings": None}),
    ("H415", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    ("H415", {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}}),
    ("H416", {"rope_scaling": YARN}),
    ("H416", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
    ("H418", {"intermediate_size": None}),
    ("H418", {**dict.fromkeys(LLAMA_CONFIG), "model_type": "bert"}),
    ("H418", {"model_type": "llava", "text_config": {"model_type": "llama"}}),
    ("H418", {"num_hidden_layers": None, "n_layer": 32}),  # as many as the class has
    ("H418", {"padded_vocab_size": 64}),  # that of the tokenizer
    ("H418", {"model_type": "mixtral", "num_local_experts": 4, "num_experts": 8}),  # one name
    ("H418", {"n_shared_experts": 1}),  # the class has none
    ("H418", {"intermediate_size": None, "num_labels": 3, "image_token_id": 7}),
    ("H418", {"some_number": 12}),  # every size is given
    ("H418", {"mm_hidden_size": 1024, "swa_head_dim": 8}),
    ("H418", {**GPT2, "num_key_value_heads": None, "n_ctx": 64}),
    # nomic-ai/nomic-embed-text-v1.5, by its own code's names: what NomicBertConfig builds anyway.
    (
        "H418",
        {
            **NONE_OF_LLAMA,
            "model_type": "nomic_bert",
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_inner": 3072,
            "vocab_size": 30528,
        },
    ),
    # jetmoe/jetmoe-8b: ffn_hidden_size is the class's intermediate_size, length the context.
    (
        "H418",
        {
            **NONE_OF_LLAMA,
            "model_type": "jetmoe",
            "ffn_hidden_size": 5632,
            "length": 4096,
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "kv_channels": 128,
            "vocab_size": 32000,
        },
    ),
    ("H419", {"visual": {"token": 64}}),
    ("H419", {"visual": {"width": 64}, "architectures": ["SomeClassifier"]}),
    ("H421", {"sliding_window": 16}),  # its class is known
    ("H421", {"model_type": "my_new", "architectures": ["MyForCausalLM"]}),
    ("H422", {"architectures": ["LLaMAForCausalLM"]}),
    ("H422", {"architectures": None}),
    ("H422", {"model_type": "mt5", "architectures": ["T5EncoderModel"]}),
    ("H422", {"model_type": "gpt-sw3", "architectures": ["GPT2LMHeadModel"]}),
    ("H422", {"model_type": "baichuan", "architectures": ["BaiChuanForCausalLM"]}),
    ("H504", {"eos_token_id": 39}),
    ("H504", {"pad_token_id": -1}),
    ("H504", {"eos_token_id": "x"}),
    # As published: facebook/musicgen-small's decoder pads with a row more, a token of sesame/csm-1b
    # is of the text, one of kyutai/stt-2.6b-en of a table that holds codes of sound, too.
    ("H504", {"model_type": "musicgen_decoder", "vocab_size": 2048, "bos_token_id": 2048}),
    ("H504", {"model_type": "csm", "vocab_size": 2051, "bos_token_id": 128000}),
    ("H504", {"model_type": "kyutai_speech_to_text", "vocab_size": 4001, "bos_token_id": 48000}),
    ("H504", {"model_type": "moshi", "vocab_size": 32000, "bos_token_id": 32000}),
    ("H606", {"dtype": None, "torch_dtype": "float16"}),
    ("H607", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
    ("H607", {"quantization_config": None}),
]


@pytest.mark.parametrize(("code", "severity", "changes"), SPEAKS)
def test_it_speaks(tmp_path: Path, code: str, severity: str, changes: Config) -> None:
    found = [(finding.code, finding.severity) for finding in audit(tmp_path, changes)]
    assert (code, severity) in found


@pytest.mark.parametrize(("code", "changes"), SILENT)
def test_it_is_silent(tmp_path: Path, code: str, changes: Config) -> None:
    assert code not in {finding.code for finding in audit(tmp_path, changes)}


def test_the_plain_config_has_no_findings(tmp_path: Path) -> None:
    assert audit(tmp_path, {}) == ()


def test_each_config_rule_has_a_case_of_either_kind() -> None:
    from headcount.audit.rules.config_rules import RULES

    codes = {rule.code for rule in RULES}
    assert {code for code, _, _ in SPEAKS} == codes
    assert {code for code, _ in SILENT} == codes


# Warnings on real configs, all looked at: (code, model). Remote code stands for itself.
KNOWN = {("H402", "openlm-research/open_llama_3b")}  # 3,200 / 32 heads = 100


def test_real_configs_have_no_errors_and_no_unexplained_warnings() -> None:
    """False alarms are worse than misses: these models load and run."""
    seen = [
        (finding.code, finding.severity, row.id)
        for row in catalogue()
        if (row.model_type or "gpt2") in ARCHITECTURES
        for finding in audit_model(row.id).findings
    ]
    assert [one for one in seen if one[1] == "error"] == []
    warnings = {(code, model) for code, severity, model in seen if severity == "warning"}
    assert {one for one in warnings if one[0] != "H301"} <= KNOWN


def test_deeply_nested_configs_are_walked(tmp_path: Path) -> None:
    deep: Config = {"trust_remote_code": True}
    for _ in range(300):
        deep = {"inner": deep}
    (finding,) = audit(tmp_path, deep)
    assert finding.code == "H305"
    assert finding.where.startswith("inner.inner.")
    assert finding.where.endswith(
        f"({300 * len('inner.') + len('trust_remote_code'):,} characters)"
    )


@pytest.mark.parametrize(
    "model_type", ["gemma2", "gemma3_text", "gpt_oss", "cohere2", "olmo3", "gemma4_text"]
)
def test_layers_with_a_window_of_null_are_refused(tmp_path: Path, model_type: str) -> None:
    """transformers 5.24 builds them all (not Gemma 4, whose config it refuses), and raises in their
    first forward ("Could not find a `sliding_window` argument in the config, or it is not set")."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type, "sliding_window": None}))
    with pytest.raises(HeadcountError, match=r"sliding_window is null.*first forward fails"):
        audit_model(str(path))


@pytest.mark.parametrize(
    ("model_type", "more", "said"),
    [
        ("llama", {}, "not given"),
        ("mistral", {"attention_chunk_size": None}, "null"),
        ("llama4_text", {"attention_chunk_size": None}, "null"),
    ],
)
def test_chunks_without_their_size_are_refused(
    model_type: str, more: dict[str, Any], said: str
) -> None:
    """transformers 5.24 fails in the first forward of each: its cache asks for the size."""
    kinds = ["chunked_attention", "full_attention"]
    config = {"model_type": model_type, "num_hidden_layers": 2, "layer_types": kinds, **more}
    with pytest.raises(HeadcountError, match=rf"attention_chunk_size is {said}.*forward fails"):
        read_config(config, "config.json")


@pytest.mark.parametrize(
    ("model_type", "given"),
    [
        ("gemma2", {}),
        ("llama4_text", {"attention_chunk_size": None}),
        *((name, {"sliding_window": None}) for name in ("mistral", "qwen2", "phi3", "smollm3")),
    ],
)
def test_a_window_of_null_is_none_where_no_layer_asks_for_it(
    tmp_path: Path, model_type: str, given: Config
) -> None:
    """As transformers 5.24 caches them: a DynamicLayer each, but for Gemma 2, whose class has a
    window of its own."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **given}))
    layers = audit_model(str(path)).spec.layers
    windows = {getattr(mixer, "window", None) for layer in layers for mixer in layer.mixers}
    assert windows == ({4096, None} if model_type == "gemma2" else {None})
