"""A number of a config is read the same wherever it stands: a whole float as its integer, and what
is no number, or none in range, as an error that names the key."""

from collections.abc import Mapping
from typing import Any

import pytest

from config_specs import read_spec
from golden_files import tiny_configs
from headcount.arch.read_config import read_config
from headcount.audit.auditing import audit_source
from headcount.model.errors import HeadcountError, InvalidConfigError
from headcount.model.spec import ModelSpec
from headcount.sources.found import FoundModel

_TEXT = {**tiny_configs()["mllama"]["text_config"], "cross_attention_layers": [1.0]}
MLLAMA = {**tiny_configs()["mllama"], "text_config": _TEXT}


def spec_of(config: Mapping[str, Any]) -> ModelSpec:
    return read_spec(config, "config.json")


def as_floats(value: Any) -> Any:
    """The same JSON with every integer as a float."""
    if isinstance(value, dict):
        return {key: as_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    return float(value) if type(value) is int else value


def shown(config: Mapping[str, Any]) -> tuple[object, ...] | str:
    """What the layers and totals of `config` are, or the error about it."""
    try:
        reading = read_config(config, "config.json")
        spec = reading.spec
        facts = (spec.hidden_size, spec.vocab_size, spec.encoder_tokens, reading.total())
        return spec.layers, *facts, reading.idle_parameters()
    except HeadcountError as error:
        return str(error)


@pytest.mark.parametrize("model_type", tiny_configs())
def test_a_whole_float_is_read_as_its_integer(model_type: str) -> None:
    config = tiny_configs()[model_type]
    assert shown(as_floats(config)) == shown(config)


@pytest.mark.parametrize("sides", [28, 28.0, [28, 28], [28.0, 28.0]])
def test_tokens_of_an_image(sides: object) -> None:
    vision = {**MLLAMA["vision_config"], "image_size": sides, "patch_size": 7.0, "max_num_tiles": 2}
    assert spec_of({**MLLAMA, "vision_config": vision}).encoder_tokens == 2 * (4 * 4 + 1)


@pytest.mark.parametrize(
    "sides", ["28", True, 28.5, -28, 0, [28], [28, None], {"height": 28}, 1e18]
)
@pytest.mark.parametrize("key", ["image_size", "patch_size"])
def test_no_sides_of_an_image(key: str, sides: object) -> None:
    vision = {**MLLAMA["vision_config"], "image_size": 28, "patch_size": 7, key: sides}
    with pytest.raises(InvalidConfigError, match=key):
        spec_of({**MLLAMA, "vision_config": vision})


# (type, key, a value of a wrong type or out of range); a dot leads into a nested config
WRONG: list[tuple[str, str, object]] = [
    *(("recurrent_gemma", "block_types", value) for value in (7, [], None, {}, "x", ["x"], [{}])),
    *(("reformer", "attn_layers", value) for value in ([{}], ["x"], 7)),
    *(("xlstm", "ffn_proj_factor", value) for value in (float("nan"), "x", -1, True)),
    *(("xlstm", "qk_dim_factor", value) for value in (float("inf"), None, 0)),
    *(("lfm2", "block_ffn_dim_multiplier", value) for value in (float("nan"), "x", True)),
    *(("vivit", "tubelet_size", value) for value in ([0, 1, 1], [1], [-1, 1, 1], 7)),
    *(("yolos", "image_size", value) for value in ([1], [0, 0], "x")),
    *(("wav2vec2", "conv_dim", value) for value in ([-8] * 7, [None], "x")),
    *(("glm_moe_dsa", "index_topk_pattern", value) for value in ([{}], [1], 7)),
    *(("step3p5", "moe_layers_enum", value) for value in ("²", "9" * 5000, [1e400], [0.5], {})),
    *(("gemma3n_text", "num_kv_shared_layers", value) for value in (10**6, -1, "x")),
    ("aria", "projector_patch_to_query_dict", {"1225": "x"}),
    ("aria", "projector_patch_to_query_dict", "x"),
    ("internvl", "downsample_ratio", 1e-300),
    ("llava", "multimodal_projector_bias", "no"),
]


# Keys that are read only without another one.
LEFT_OUT = {
    "moe_layers_enum": {"mlp_layer_types": None},
    "index_topk_pattern": {"indexer_types": None},
    "projector_patch_to_query_dict": {"max_value_projector_patch_to_query_dict": None},
}


@pytest.mark.parametrize(("model_type", "key", "value"), WRONG)
def test_a_wrong_value_is_an_error_that_names_its_key(
    model_type: str, key: str, value: object
) -> None:
    config = {**tiny_configs()[model_type], **LEFT_OUT.get(key, {}), key: value}
    with pytest.raises(InvalidConfigError, match=key):
        spec_of(config)


WITH_TOWERS = [
    name for name, config in tiny_configs().items() if isinstance(config.get("vision_config"), dict)
]


@pytest.mark.parametrize("model_type", WITH_TOWERS)
@pytest.mark.parametrize("kind", [["x"], {"a": 1}, 7, True])
def test_a_tower_whose_type_is_no_text(model_type: str, kind: object) -> None:
    config = tiny_configs()[model_type]
    vision = {**config["vision_config"], "model_type": kind}
    found = FoundModel(
        kind="config", id="m", where="config.json", config={**config, "vision_config": vision}
    )
    try:
        assert audit_source(found).spec.layers
    except HeadcountError as error:
        assert "vision_config" in str(error)


def test_every_layer_of_a_drafting_model_reads_the_cache_of_another() -> None:
    spec = spec_of({"model_type": "gemma4_assistant"})
    assert spec.layers and spec.cache_bytes(tokens=100) == 0


@pytest.mark.parametrize(("width", "total"), [(None, 227_136), (0, 227_136), (128, 276_288)])
def test_a_shared_mlp_without_width_is_none(width: int | None, total: int) -> None:
    """Totals of GraniteMoeSharedForCausalLM of transformers 5.24, whose default width is 0."""
    config = {
        **{"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 48},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"model_type": "granitemoeshared", "num_local_experts": 4},
        **({} if width is None else {"shared_intermediate_size": width}),
    }
    found = FoundModel(kind="config", id="m", where="config.json", config=config)
    assert audit_source(found).spec.parameters == total
