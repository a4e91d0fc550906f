"""An encoder and a decoder that are models of their own: the decoder writes the text."""

import pytest

from headcount.arch.read_config import read_config


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
