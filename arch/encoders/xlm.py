"""XLM and FlauBERT: layers of GPT-2's kind that see both ways, with a head over the vocabulary."""

from dataclasses import replace

from ..architecture import Architecture
from ..attention.shared import ENCODER_MHA
from ..body.body import WEIGHT_AND_BIAS, Body, Layers, one_per_mixer
from ..body.feed_forward import Mlp, four_times_hidden
from ..config_view import ConfigView
from ..tensors.names import TensorNames


def language_embeddings(view: ConfigView, layers: Layers) -> int:
    """XLM: an embedding of each language where there are several."""
    count = view.optional("n_langs") or 1
    used = count > 1 and view.flag("use_lang_emb")
    return count * view.integer("hidden_size") if used else 0


# Its attentions are numbered apart from the rest of its layers.
XLM_NAMES = TensorNames(modules={"q_lin": "q", "k_lin": "k", "v_lin": "v", "out_lin": "o"})

ARCHITECTURES = (
    Architecture(
        types=("xlm", "flaubert"),
        attention=replace(ENCODER_MHA, stack="decoder"),
        tensors=XLM_NAMES,
        body=Body(
            norm=WEIGHT_AND_BIAS,
            norms=one_per_mixer,
            embedding_norms=1,
            final_norms=0,
            positions=("max_position_embeddings",),
            mlp=Mlp(width=four_times_hidden, gated=False, bias=True),
            more=language_embeddings,
            head_bias=True,
        ),
    ),
)
