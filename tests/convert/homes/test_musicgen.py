"""MusicGen whole: a text encoder and an audio codec around the decoder, which alone is converted.

test_every_mha_type converts the decoder by itself, as its auto class loads it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForTextToWaveform,
    EncodecConfig,
    MusicgenConfig,
    MusicgenForConditionalGeneration,
    MusicgenMelodyConfig,
    MusicgenMelodyForConditionalGeneration,
    T5Config,
)

from conversions import load_whole, run
from headcount.audit import audit_model
from mha_types import HEADS, HIDDEN, KV, TOKENS, cached_heads, tie
from tiny_truth import count

pytestmark = pytest.mark.needs_convert

CLASSES = {
    "musicgen": (MusicgenConfig, MusicgenForConditionalGeneration),
    "musicgen_melody": (MusicgenMelodyConfig, MusicgenMelodyForConditionalGeneration),
}
CHROMA = {"musicgen_melody": 235}  # its class's default: so much of a melody, even of none
T5 = T5Config(vocab_size=130, d_model=48, d_kv=12, d_ff=40, num_layers=2, num_heads=4)
ENCODEC = EncodecConfig(
    sampling_rate=800,
    upsampling_ratios=[4, 2],
    target_bandwidths=[0.4, 0.8],
    codebook_size=16,
    codebook_dim=8,
    hidden_size=8,
    num_filters=2,
    num_lstm_layers=1,
)
DECODER = {
    **dict.fromkeys(("vocab_size", "pad_token_id", "bos_token_id"), 16),
    **{"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": 3, "ffn_dim": 48},
    **{"num_codebooks": 2, "max_position_embeddings": 64},
}


@pytest.fixture(scope="module", params=CLASSES)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model whose heads agree in groups, and its conversion."""
    folder = tmp_path_factory.mktemp(request.param)
    config, model_class = CLASSES[request.param]
    torch.manual_seed(0)
    parts = {"text_encoder": T5.to_dict(), "audio_encoder": ENCODEC.to_dict(), "decoder": DECODER}
    model = model_class(config(**parts)).double().eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    tie(model.decoder)
    model.save_pretrained(folder / "mha")
    run(folder / "mha", folder / "gqa", KV)
    return folder / "mha", folder / "gqa"


def load(folder: Path) -> Any:
    model = load_whole(folder, AutoModelForTextToWaveform, attn_implementation="eager")
    model.generation_config.num_return_sequences = 1
    model.generation_config.pad_token_id = model.generation_config.decoder_start_token_id = 16
    return model


def outputs(model: Any) -> Any:
    codes = TOKENS[:, :6] % 16
    with torch.no_grad():
        return model(input_ids=TOKENS[:1], decoder_input_ids=codes, use_cache=True)


def test_it_computes_the_same(folders: Any) -> None:
    source, result = (load(folder) for folder in folders)
    assert (outputs(result).logits - outputs(source).logits).abs().max() <= 1e-10
    options = {"max_new_tokens": 6, "do_sample": False, "guidance_scale": 1.0}
    one, other = (model.generate(input_ids=TOKENS[:1], **options) for model in (source, result))
    assert torch.equal(one, other)


def test_its_cache_is_small_and_as_audited(folders: Any) -> None:
    for folder, heads in zip(folders, (HEADS, KV), strict=True):
        cache = outputs(load(folder)).past_key_values
        assert cached_heads(cache) == {heads}
        spec = audit_model(str(folder)).spec
        in_front = TOKENS.shape[1] + CHROMA.get(spec.model_type.removeprefix("headcount_"), 0)
        said = [m.state_elements(6, in_front) for layer in spec.layers for m in layer.mixers]
        held = count(cache)
        assert sum(said) == sum(held.self_attention) + sum(held.cross_attention)
