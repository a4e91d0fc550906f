"""What single families hold beside the common shape: the callables that rows of bodies.py name."""

from headcount.model.spec import Layer

from ..body.body import Body, Head, Layers
from ..body.feed_forward import matrices
from ..body.image_embeddings import (
    area as area,
)
from ..body.image_embeddings import (
    clip_embeddings as clip_embeddings,
)
from ..body.image_embeddings import (
    convolution as convolution,
)
from ..body.image_embeddings import (
    patch_count as patch_count,
)
from ..body.image_embeddings import (
    patches as patches,
)
from ..body.image_embeddings import (
    sides as sides,
)
from ..body.image_embeddings import (
    vit_embeddings as vit_embeddings,
)
from ..config_view import ConfigView
from ..decoders.nemotron import (
    _block as _block,
)
from ..decoders.nemotron import (
    deci_linears as deci_linears,
)
from ..decoders.nemotron import (
    deci_norms as deci_norms,
)
from ..decoders.nemotron import (
    deci_width as deci_width,
)
from ..decoders.phi import (
    stablelm_norms as stablelm_norms,
)

# --- norms -----------------------------------------------------------------------------------


def falcon_norms(view: ConfigView, layer: Layer) -> int:
    """Two, or one before both halves of a parallel layer; the new architecture keeps two there."""
    if not view.flag("parallel_attn"):
        return 2
    given = view.optional("num_ln_in_parallel_attn")
    return 2 if given == 2 or (given is None and view.flag("new_decoder_architecture")) else 1


def opt_final_norms(view: ConfigView) -> int:
    """None in OPT-350m, which normalises after each half of a layer."""
    return int(view.flag("do_layer_norm_before") and not view.flag("_remove_final_layer_norm"))


def gemma4_norms(view: ConfigView, layer: Layer) -> int:
    """Four, one after the per-layer input, and with experts three more and the router's scale."""
    per_layer_input = view.optional("hidden_size_per_layer_input", minimum=0)
    return 4 + bool(per_layer_input) + (4 if view.flag("enable_moe_block") else 0)


# --- widths and kinds of the MLP ---------------------------------------------------------------


def t5_gated(view: ConfigView) -> bool:
    """`feed_forward_proj` is `relu` in T5 and `gated-gelu` in T5 v1.1, unless the file says it."""
    said = view.config.get("is_gated_act")
    if isinstance(said, bool):
        return said
    value = view.get("feed_forward_proj")
    return isinstance(value, str) and value.startswith("gated")


def gemma4_width(view: ConfigView, layer: Layer) -> int:
    """With `use_double_wide_mlp`, layers that read another layer's cache are twice as wide."""
    wide = view.flag("use_double_wide_mlp") and layer.shares_cache_with is not None
    return view.integer("intermediate_size") * (2 if wide else 1)


def llama4_width(view: ConfigView, layer: Layer) -> int:
    """Layers without experts; `intermediate_size` is the width of an expert."""
    return view.integer("intermediate_size_mlp")


def qwen_width(view: ConfigView, layer: Layer) -> int:
    """Qwen's first model counts both branches of the gated MLP in `intermediate_size`."""
    return view.integer("intermediate_size") // 2


def ratio_width(view: ConfigView, layer: Layer) -> int:
    return view.integer("hidden_size") * view.integer("mlp_ratio")


# --- embeddings and blocks of their own --------------------------------------------------------


def bart_copies(view: ConfigView, layers: Layers) -> int:
    """Untied, each stack has an embedding of its own beside the shared one."""
    copies = 0 if view.flag("tie_word_embeddings") else 2
    return copies * view.integer("vocab_size") * view.integer("hidden_size")


def whisper_frontend(view: ConfigView, layers: Layers) -> int:
    """Two convolutions over three frames of the spectrogram."""
    bins, hidden = view.integer("num_mel_bins"), view.integer("hidden_size")
    return convolution(view, inputs=bins, positions=3) + convolution(
        view, inputs=hidden, positions=3
    )


def apertus_activations(view: ConfigView, layers: Layers) -> int:
    """The xIELU activation learns two numbers in each layer."""
    learned = view.get("hidden_act") in (None, "xielu")
    return 2 * len(layers) if learned else 0


def mllama_text(view: ConfigView, layers: Layers) -> int:
    """Eight more tokens than the head has, and two gates in each cross-attention layer."""
    crossing = sum(m.kind == "cross_attention" for layer in layers for m in layer.mixers)
    return 8 * view.integer("hidden_size") + 2 * crossing


def per_layer_inputs(view: ConfigView, layers: Layers) -> int:
    """Gemma 3n and 4: an embedding of width d for each layer, and its projections."""
    d = view.optional("hidden_size_per_layer_input", minimum=0)
    if not d:
        return 0
    hidden, count = view.integer("hidden_size"), len(layers)
    embedding = view.integer("vocab_size_per_layer_input") * count * d
    return embedding + hidden * count * d + d + 2 * count * hidden * d


def gemma3n(view: ConfigView, layers: Layers) -> int:
    """Per-layer inputs, AltUp over n copies of the hidden state, and low-rank LAuReL blocks."""
    hidden, n = view.integer("hidden_size"), view.integer("altup_num_inputs")
    laurel = 2 * hidden * view.integer("laurel_rank")
    each = n * n + n**3 + n * hidden + laurel
    return per_layer_inputs(view, layers) + len(layers) * each + 2 * (n - 1) * hidden * hidden


def mimo_prediction(view: ConfigView, layers: Layers) -> int:
    """Each layer for multi-token prediction is a whole layer with a projection of two hidden states
    to one, and three norms more. Its attention counts here: nothing of it is decoded with."""
    count = view.optional("num_nextn_predict_layers", minimum=0) or 0
    hidden = view.integer("hidden_size")
    mlp = matrices(hidden, view.integer("intermediate_size"), gated=True)
    return count * (layers[-1].parameters().total + mlp + 2 * hidden * hidden + 5 * hidden)


# --- DeciLM: every block of its own ------------------------------------------------------------


# --- heads of encoders -------------------------------------------------------------------------


def masked_lm_head(body: Body, view: ConfigView, tied: bool) -> int:
    """BERT's: a dense layer and a norm, then the vocabulary with a bias. Untied, the matrix has a
    bias of its own beside the head's."""
    hidden, vocab = view.integer("hidden_size"), view.integer("vocab_size")
    decoder = 0 if tied else vocab * (hidden + 1)
    return hidden * (hidden + 1) + 2 * hidden + vocab + decoder


def pooler(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer on the first token."""
    hidden = view.integer("hidden_size")
    return (hidden + 1) * (view.optional("pooler_output_size") or hidden)


def pretraining_head(body: Body, view: ConfigView, tied: bool) -> int:
    """The masked language model, the pooler, and whether the second sentence follows."""
    both = masked_lm_head(body, view, tied) + pooler(body, view, tied)
    return both + 2 * (view.integer("hidden_size") + 1)


BERT_CLASSES: dict[str, Head | None] = {
    "ForMaskedLM": masked_lm_head,
    "BertLMHeadModel": masked_lm_head,
    "RobertaForCausalLM": masked_lm_head,
    "BertForPreTraining": pretraining_head,
    "BertModel": pooler,
    "RobertaModel": pooler,
}
VIT_CLASSES: dict[str, Head | None] = {"ViTModel": pooler}
