"""What the class that `architectures` names decides: its stacks, head, cache and parameters."""

from collections import Counter
from typing import Any

import pytest

from against_record import differences
from headcount.arch.built_classes import built_class, label_count, type_of_class
from headcount.arch.class_defaults import class_defaults
from headcount.arch.config_view import ConfigView
from headcount.arch.read_config import Reading, read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.model.errors import HeadcountError, InvalidConfigError, UnsupportedModelError
from truth_record import Line, key_of, recorded

# The text encoder of image models of 2024: T5 v1.1 XXL.
T5_XXL = {
    **{"model_type": "t5", "architectures": ["T5EncoderModel"], "feed_forward_proj": "gated-gelu"},
    **{"d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64, "num_layers": 24},
    **{"num_decoder_layers": 24, "is_encoder_decoder": True, "vocab_size": 32128},
}
CLIP = {
    "model_type": "clip",
    "projection_dim": 512,
    "text_config": {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 12},
    "vision_config": {"hidden_size": 768, "num_attention_heads": 12, "patch_size": 32},
}


def lines() -> list[Line]:
    return [line for line in recorded("classes") if "reason" not in line]


def named(line: Line) -> list[tuple[str, dict[str, Any], Line]]:
    """(class, the config that names it, what was built of it)."""
    config = line["config"]
    return [(n, {**config, "architectures": [n]}, held) for n, held in line["classes"].items()]


def outcomes(line: Line) -> Counter[str]:
    return Counter(outcome(config, held) for _, config, held in named(line))


def outcome(config: dict[str, Any], held: Line) -> str:
    try:
        total, why = read_config(config, "config.json").total()
    except HeadcountError:
        return "refused"
    if total is None:
        assert why
        return "unknown"
    return "equal" if total == held["parameters"] else "wrong"


def test_the_record_has_every_type_with_classes() -> None:
    types = set(map(key_of, lines()))
    assert types <= set(ARCHITECTURES)
    assert len(types) > 400
    assert sum(len(line["classes"]) for line in lines()) > 2000


def test_nearly_all_totals_of_types_with_a_body_are_known() -> None:
    """That none is wrong is tested in tests/audit/test_truth.py."""
    counted = [line for line in lines() if ARCHITECTURES[key_of(line)].body is not None]
    found = sum(map(outcomes, counted[::10]), Counter[str]())
    assert found["equal"] > 0.95 * found.total() > 150


def read(config: dict[str, Any]) -> Reading:
    return read_config(config, "config.json")


def cache_of(reading: Reading) -> int:
    spec = reading.spec
    return spec.cache_bytes(tokens=9, bits=8)


def test_an_encoder_alone_keeps_nothing() -> None:
    """4 h^2 a layer for 24 layers, and one table of 32 buckets for 64 heads."""
    reading = read(T5_XXL)
    assert reading.spec.attention_parameters == 24 * 4 * 4096**2 + 32 * 64 == 1_610_614_784
    assert {layer.stack for layer in reading.spec.layers} == {"encoder"}
    assert cache_of(reading) == 0


@pytest.mark.parametrize(
    ("model_type", "name", "vocab", "total"),
    [  # half the total_size of FLUX.1's text_encoder_2: 9,524,621,312 bytes in bfloat16
        ("t5", "T5EncoderModel", 32128, 4_762_310_656),
        # google/umt5-xxl's encoder: 11.36 GB in Wan 2.1's file in bfloat16
        ("umt5", "UMT5EncoderModel", 256384, 5_680_910_336),
    ],
)
def test_text_encoders_of_image_models_have_their_published_sizes(
    model_type: str, name: str, vocab: int, total: int
) -> None:
    own = {"model_type": model_type, "architectures": [name], "vocab_size": vocab}
    reading = read({**T5_XXL, **own})
    assert reading.total() == (total, None)
    assert cache_of(reading) == 0


ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
PUBLISHED = {  # parameters that the Hub shows of the model's safetensors
    # stabilityai/stable-diffusion-xl-base-1.0, text_encoder_2
    "CLIPTextModelWithProjection": 694_659_840,
    "RobertaForSequenceClassification": 124_647_939,  # cardiffnlp/twitter-roberta-base-sentiment
    "DistilBertForSequenceClassification": 66_955_010,  # …-uncased-finetuned-sst-2-english
    "XLMRobertaForSequenceClassification": 559_891_457,  # BAAI/bge-reranker-large
    "BartForSequenceClassification": 407_344_131,  # facebook/bart-large-mnli
    "ViTForImageClassification": 86_567_656,  # google/vit-base-patch16-224
}
CONFIGS: dict[str, dict[str, Any]] = {
    "CLIPTextModelWithProjection": {
        **{"model_type": "clip_text_model", "hidden_size": 1280, "intermediate_size": 5120},
        **{"num_hidden_layers": 32, "num_attention_heads": 20, "projection_dim": 1280},
    },
    "RobertaForSequenceClassification": {
        **ROBERTA,
        **{"model_type": "roberta", "vocab_size": 50265, "num_labels": 3},
    },
    "DistilBertForSequenceClassification": {"model_type": "distilbert"},
    "XLMRobertaForSequenceClassification": {
        **ROBERTA,
        **{"model_type": "xlm-roberta", "vocab_size": 250002, "hidden_size": 1024},
        **{"num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
        "id2label": {"0": "LABEL_0"},
    },
    "BartForSequenceClassification": {"model_type": "bart"},  # whose class has three labels
    "ViTForImageClassification": {"model_type": "vit", "num_labels": 1000},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_heads_have_their_published_sizes(name: str) -> None:
    assert read({**CONFIGS[name], "architectures": [name]}).total() == (PUBLISHED[name], None)


# Defaults of transformers' config classes that are not two.
LABELS = {"bart": 3, "openai_privacy_filter": 33, "pvt": 1000, "pp_ocrv5_server_det": 1, "bert": 2}


@pytest.mark.parametrize(("model_type", "count"), LABELS.items())
def test_labels_that_no_config_names_are_those_of_the_class(model_type: str, count: int) -> None:
    known = class_defaults(model_type)
    assert known is not None
    view = ConfigView({}, where="config.json", defaults=known.defaults)
    assert label_count(view) == count


QWEN2_7B = {
    **{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944},
    **{"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4},
    **{"vocab_size": 152064, "tie_word_embeddings": False},
}
INTERNLM2_7B = {
    **{"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336},
    **{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    **{"bias": False, "vocab_size": 92544, "tie_word_embeddings": False},
}


@pytest.mark.parametrize(
    ("config", "name", "more"),
    [
        # Two layers with biases for one number, or for two (qwen2_rm.py of vLLM); one without.
        (QWEN2_7B, "Qwen2ForRewardModel", 3584 * 3584 + 3584 + 3584 + 1),
        (QWEN2_7B, "Qwen2ForProcessRewardModel", 3584 * 3584 + 3584 + 2 * 3584 + 2),
        (INTERNLM2_7B, "InternLM2ForRewardModel", 4096),
    ],
)
def test_reward_models_have_the_head_of_their_code(
    config: dict[str, Any], name: str, more: int
) -> None:
    bare = name.partition("For")[0] + "Model"
    (without, _), (held, _) = (
        read({**config, "architectures": [each]}).total() for each in (bare, name)
    )
    assert without is not None
    assert held == without + more


@pytest.mark.parametrize(
    "name", ["LlamaForRewardModel", "LlamaRewardModel", "LlamaForCriticModel", "LlamaValueModel"]
)
def test_a_head_that_nobody_describes_is_named(name: str) -> None:
    total, why = read({"model_type": "llama", "architectures": [name]}).total()
    assert total is None and name in str(why)


@pytest.mark.parametrize(
    "name",
    [  # as vLLM 0.25 registers them
        *("DFlashDraftModel", "PeagleLlamaForCausalLM", "EagleLlamaForCausalLM"),
        *("DeepSeekMTPModel", "LlamaForCausalLMEagle3"),
    ],
)
def test_a_model_that_drafts_is_not_the_one_whose_type_it_has(name: str) -> None:
    total, why = read({"model_type": "llama", "architectures": [name]}).total()
    assert total is None and name in str(why)


# Layers, their first number, elements of the cache a token, attention parameters. EAGLE's layers
# are the config's own (llama_eagle.py and llama_eagle3.py of vLLM 0.25: the first of EAGLE-3 has a
# qkv_proj of 2 * hidden_size); those that predict stand behind the model's (deepseek_mtp.py).
DRAFTS = [
    ("llama", "EagleLlamaForCausalLM", 3, 0, 3 * 2 * 16 * 2, 3 * 12_288),
    ("llama", "LlamaForCausalLMEagle3", 3, 0, 3 * 2 * 16 * 2, 3 * 12_288 + 64 * (64 + 2 * 32)),
    ("mimo", "MiMoMTPModel", 2, 3, 2 * 2 * 16 * 2, 2 * (12_288 + 64 + 32 + 32)),
]


@pytest.mark.parametrize(("model_type", "name", "layers", "first", "cache", "parameters"), DRAFTS)
def test_a_draft_keeps_what_its_own_layers_do(
    model_type: str, name: str, layers: int, first: int, cache: int, parameters: int
) -> None:
    config = {
        **{"model_type": model_type, "architectures": [name], "hidden_size": 64, "head_dim": 16},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3},
        **{"vocab_size": 96, "intermediate_size": 80, "num_nextn_predict_layers": 2},
    }
    spec = read(config).spec
    assert [layer.index for layer in spec.layers] == [*range(first, first + layers)]
    assert spec.cache_bytes_per_token(bits=8) == cache
    assert spec.attention_parameters == parameters


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": 4},
        {"model_type": "llama", "architectures": ["MedusaModel"]},
        {"model_type": "mlp_speculator", "num_attention_heads": 4},
    ],
)
def test_heads_that_attend_to_nothing_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match="attends to nothing and keeps no cache"):
        read({**config, "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 96})


def test_a_decoder_alone_keeps_nothing_of_an_encoder() -> None:
    config = {
        **{"model_type": "whisper", "is_encoder_decoder": False, "d_model": 64, "vocab_size": 90},
        **{"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 80},
        "encoder_attention_heads": 4,
    }
    alone = read({**config, "architectures": ["WhisperForCausalLM"]}).spec
    assert [layer.stack for layer in alone.layers] == ["decoder"] * 2
    assert alone.encoder_tokens == 0
    assert alone.cache_bytes(tokens=9, bits=8) == 2 * 2 * 64 * 9
    both = {**config, "is_encoder_decoder": True, "encoder_layers": 1}
    whole = read({**both, "architectures": ["WhisperForConditionalGeneration"]}).spec
    assert whole.encoder_tokens == 1500
    assert [layer.stack for layer in whole.layers] == ["encoder", "decoder", "decoder"]


@pytest.mark.parametrize(
    ("name", "stack", "parameters"),
    [  # openai/clip-vit-base-patch32, as its files hold the halves
        ("CLIPTextModel", "encoder", 63_165_952),
        ("CLIPTextModelWithProjection", "encoder", 63_165_952 + 512 * 512),
        ("CLIPVisionModel", "encoder", 87_456_000),
        ("CLIPVisionModelWithProjection", "encoder", 87_456_000 + 768 * 512),
        ("CLIPModel", "text", 151_277_313),
    ],
)
def test_a_half_of_a_model_of_two_towers(name: str, stack: str, parameters: int) -> None:
    reading = read({**CLIP, "architectures": [name]})
    assert reading.total() == (parameters, None)
    assert reading.spec.layers[0].stack == stack
    assert cache_of(reading) == 0


def test_a_decoder_that_a_model_nests_is_read_alone() -> None:
    inner = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 80}
    config = {"model_type": "musicgen", "decoder": {**inner, "num_codebooks": 3, "vocab_size": 50}}
    reading = read({**config, "architectures": ["MusicgenForCausalLM"]})
    layer = 8 * 64**2 + 2 * 64 * 80 + 6 * 64
    assert reading.total() == (2 * layer + 2 * 64 + 3 * 64 * (50 + 51), None)
    assert cache_of(reading) == 2 * 2 * 64 * 9


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 2),
        ({"num_labels": 1}, 1),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3),
        ({"id2label": None, "num_labels": 4}, 4),
        ({"id2label": {"0": "a"}, "num_labels": 7}, 1),
    ],
)
def test_labels_are_counted_as_a_class_counts_them(config: dict[str, Any], count: int) -> None:
    assert label_count(ConfigView(config, where="c")) == count


def test_labels_that_are_no_object_are_named() -> None:
    with pytest.raises(InvalidConfigError, match="id2label must be an object"):
        label_count(ConfigView({"id2label": "three"}, where="config.json"))


def test_a_class_is_found_by_its_name() -> None:
    assert type_of_class("CLIPTextModelWithProjection") == "clip_text_model"
    assert type_of_class("BertModel") == "bert"
    assert type_of_class("") is None
    assert type_of_class("NoSuchModel") is None
    assert type_of_class("model_type") is None


def test_the_base_class_differs_in_nothing() -> None:
    view = ConfigView({"architectures": ["BertModel"]}, where="c", model_type="bert")
    assert built_class(view) is None


@pytest.mark.parametrize(("model_type", "total"), [("mt5", 4_762_310_656), ("umt5", None)], ids=str)
def test_an_encoder_of_another_type_is_no_decoder_either(
    model_type: str, total: int | None
) -> None:
    """mT5 is T5 by another name; UMT5 has a table of positions in each layer."""
    reading = read({**T5_XXL, "model_type": model_type})
    assert {layer.stack for layer in reading.spec.layers} == {"encoder"}
    assert reading.parameters() == total


def test_a_class_with_layers_of_its_own_says_so() -> None:
    for line in lines():
        for name, config, _ in named(line):
            view = ConfigView(config, where="c", model_type=key_of(line))
            found = built_class(view)
            if found is not None and found.own_layers and ARCHITECTURES[key_of(line)].body:
                _, why = read(config).total()
                assert why is not None and name in why


@pytest.mark.parametrize("part", ["parameters", "attention", "cache"])
def test_a_difference_is_seen(part: str) -> None:
    line = next(line for line in lines() if key_of(line) == "t5")
    name, held = next(iter(line["classes"].items()))
    wrong = {**line, "classes": {name: {**held, part: held[part] + 1}}}
    assert differences("classes", line) == []
    assert differences("classes", wrong) != []
