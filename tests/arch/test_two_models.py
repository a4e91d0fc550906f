"""An encoder and a decoder that are models of their own: the decoder writes the text."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.arch.read_config import read_config
from headcount.cli import main


@pytest.mark.parametrize(
    ("whole", "encoder"),
    [("encoder-decoder", "bert"), ("vision-encoder-decoder", "vit")],
)
def test_length_and_vocabulary_are_the_decoders(whole: str, encoder: str) -> None:
    decoder = {
        **{"model_type": "gpt2", "n_positions": 77, "vocab_size": 123, "n_embd": 64, "n_head": 4},
        **{"n_layer": 2, "add_cross_attention": True},
    }
    config = {"model_type": whole, "encoder": {"model_type": encoder}, "decoder": decoder}
    spec = read_config(config, "config.json").spec
    assert (spec.max_position_embeddings, spec.vocab_size) == (77, 123)


STAGES = {"embed_dim": 4, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1], "patch_size": 4}
# Tokens of the cross-attention cache that transformers 5.24 keeps of one image, by encoder.
IMAGES: dict[str, tuple[dict[str, Any], int]] = {
    "vit": ({"image_size": 384, "patch_size": 16}, 577),
    "deit": ({"image_size": 224, "patch_size": 16}, 198),
    "beit": ({"image_size": 384, "patch_size": 16, "vocab_size": 10}, 577),
    "clip_vision_model": ({"image_size": 224, "patch_size": 32}, 50),
    "siglip_vision_model": ({"image_size": 224, "patch_size": 16}, 196),
    "dinov2": ({"image_size": 224, "patch_size": 14}, 257),
    "dinov2_with_registers": ({"image_size": 224, "patch_size": 14, "num_register_tokens": 4}, 261),
    "dinov3_vit": ({"image_size": 224, "patch_size": 16, "num_register_tokens": 4}, 201),
    "ijepa": ({"image_size": 224, "patch_size": 14}, 256),
    "data2vec-vision": ({"image_size": 64, "patch_size": 16}, 17),
    "yolos": ({"image_size": [64, 96], "patch_size": 16, "num_detection_tokens": 7}, 32),
    "swin": ({**STAGES, "image_size": 224}, 49),
    "donut-swin": ({**STAGES, "image_size": [640, 480]}, 300),
    "swinv2": ({**STAGES, "image_size": [102, 60]}, 8),  # 26 x 15, 13 x 8, 7 x 4, 4 x 2
    "maskformer-swin": ({**STAGES, "image_size": 96}, 9),
}
SMALL = {
    **{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "intermediate_size": 32,
}
DECODER = {
    **{"model_type": "trocr", "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 2},
    **{"decoder_ffn_dim": 32, "vocab_size": 50, "max_position_embeddings": 64},
    **{"is_decoder": True, "add_cross_attention": True, "cross_attention_hidden_size": 32},
}


def of_image(encoder: str) -> dict[str, Any]:
    given = IMAGES[encoder][0]
    own = {"model_type": encoder, **({} if "depths" in given else SMALL), **given}
    return {"model_type": "vision-encoder-decoder", "encoder": own, "decoder": DECODER}


@pytest.mark.parametrize("encoder", IMAGES)
def test_a_decoder_keeps_the_tokens_of_one_image(encoder: str) -> None:
    spec = read_config(of_image(encoder), "config.json").spec
    assert spec.encoder_tokens == IMAGES[encoder][1]
    assert not spec.assumes_encoder_tokens
    assert spec.max_position_embeddings == 64


@pytest.mark.slow
@pytest.mark.needs_convert
@pytest.mark.parametrize("encoder", IMAGES)
def test_the_tokens_are_those_that_transformers_caches(encoder: str) -> None:
    import torch
    from transformers import AutoConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel

    config = of_image(encoder)
    parts = (AutoConfig.for_model(**config[key]) for key in ("encoder", "decoder"))
    model = VisionEncoderDecoderModel(
        VisionEncoderDecoderConfig.from_encoder_decoder_configs(*parts)
    ).eval()
    size = config["encoder"]["image_size"]
    height, width = size if isinstance(size, list) else (size, size)
    with torch.no_grad():
        output = model(
            pixel_values=torch.zeros(1, 3, height, width),
            decoder_input_ids=torch.zeros(1, 2, dtype=torch.long),
            use_cache=True,
        )
    kept = output.past_key_values.cross_attention_cache.layers[0].keys.shape[2]
    assert kept == IMAGES[encoder][1] == read_config(config, "config.json").spec.encoder_tokens


DONUT = {  # naver-clova-ix/donut-base
    **{"model_type": "donut-swin", "image_size": [2560, 1920], "patch_size": 4, "embed_dim": 128},
    **{"depths": [2, 2, 14, 2], "num_heads": [4, 8, 16, 32], "window_size": 10, "mlp_ratio": 4.0},
}
DONUT_DECODER = {
    **{"model_type": "mbart", "d_model": 1024, "decoder_layers": 4, "decoder_ffn_dim": 4096},
    **{"decoder_attention_heads": 16, "vocab_size": 57_525, "max_position_embeddings": 1536},
    **{"is_decoder": True, "add_cross_attention": True, "add_final_layer_norm": True},
}
BART = {
    **{"model_type": "bart", "d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4},
    **{"decoder_ffn_dim": 48, "vocab_size": 50, "max_position_embeddings": 64},
}
SWIN = {"model_type": "swin", **STAGES, "embed_dim": 8}
# All parameters of the models that transformers 5.24 builds, and their layers.
TOTALS: list[tuple[dict[str, Any], dict[str, Any], int, int]] = [
    (DONUT, DONUT_DECODER, 201_852_024, 24),
    (SWIN, BART, 166_644, 6),
    ({"model_type": "swinv2", **STAGES, "use_absolute_embeddings": True}, DECODER, 66_132, 6),
    ({"model_type": "vit", **SMALL}, BART, 128_032, 3),
]


@pytest.mark.parametrize(("encoder", "decoder", "parameters", "layers"), TOTALS)
def test_the_total_is_that_of_both(
    encoder: dict[str, Any], decoder: dict[str, Any], parameters: int, layers: int
) -> None:
    """Of a BART, the decoder alone."""
    config = {"model_type": "vision-encoder-decoder", "encoder": encoder, "decoder": decoder}
    reading = read_config(config, "config.json")
    assert reading.total() == (parameters, None)
    assert len(reading.spec.layers) == layers


def test_an_encoder_keeps_nothing_whatever_it_says_of_itself() -> None:
    """transformers 5.24 holds a cache of the decoder's layers alone."""
    encoder = {"model_type": "bert", "num_hidden_layers": 4, "is_decoder": True}
    decoder = {"model_type": "bert", "num_hidden_layers": 3, "is_decoder": True}
    config = {"model_type": "encoder-decoder", "encoder": encoder, "decoder": decoder}
    layers = read_config(config, "config.json").spec.layers
    kept = [layer.mixers[0].state_elements(5, 0) for layer in layers]
    assert [elements > 0 for elements in kept] == [False] * 4 + [True] * 3


def test_an_encoder_of_text_sees_no_more_than_its_positions() -> None:
    encoder = {"model_type": "bert", "max_position_embeddings": 384}
    decoder = {"model_type": "bert", "is_decoder": True, "add_cross_attention": True}
    config = {"model_type": "encoder-decoder", "encoder": encoder, "decoder": decoder}
    spec = read_config(config, "config.json").spec
    assert (spec.encoder_tokens, spec.max_position_embeddings) == (384, 512)


@pytest.mark.parametrize(("size", "tokens"), [(384, 36), (400, 49), (512, 64)])
def test_convolutions_behind_a_tower_leave_fewer_tokens(size: int, tokens: int) -> None:
    """The cross-attention cache of tiny models of transformers 5.24."""
    vision = {"image_size": size, "patch_size": 16}
    text = {"d_model": 32, "decoder_layers": 1, "decoder_attention_heads": 2, "vocab_size": 50}
    config = {"model_type": "pp_formulanet", "vision_config": vision, "text_config": text}
    assert read_config(config, "config.json").spec.encoder_tokens == tokens


def test_a_length_that_no_config_gives_is_said_to_be_assumed(tmp_path: Path) -> None:
    """Sound is as long as it is."""
    encoder = {"model_type": "wav2vec2", **SMALL}
    config = {"model_type": "speech-encoder-decoder", "encoder": encoder, "decoder": DECODER}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), "utf-8")
    for command in ("audit", "plan"):
        more = () if command == "audit" else ("--parameters", "1m")
        text = CliRunner().invoke(main, [command, str(file), *more]).stdout
        assert "512 encoder tokens are assumed" in " ".join(text.split())
        given = CliRunner().invoke(main, [command, str(file), *more, "--encoder-tokens", "99"])
        assert given.exit_code == 0
        assert "are assumed" not in given.stdout
