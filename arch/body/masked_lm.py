"""Heads of encoders: a masked language model, a pooler; and the classes that have them."""

from ..config_view import ConfigView
from .body import Body, Head, Layers, no_head


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


def one_bias_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer and a norm, then the vocabulary with one bias, tied or not."""
    return masked_lm_head(body, view, True) + vocabulary_matrix(view, tied)


def small_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer to the width of the embeddings, a norm there, and the vocabulary."""
    hidden, width = view.integer("hidden_size"), view.integer("embedding_size")
    vocab = view.integer("vocab_size")
    return (hidden + 1) * width + 2 * width + vocab + (0 if tied else vocab * (width + 1))


def vocabulary_matrix(view: ConfigView, tied: bool) -> int:
    return 0 if tied else view.integer("vocab_size") * view.integer("hidden_size")


def always_pooled(view: ConfigView, layers: Layers) -> int:
    """A pooler in every class."""
    hidden = view.integer("hidden_size")
    return hidden * (hidden + 1)


def small_embeddings(view: ConfigView, *, positions: bool = True, always: bool = False) -> int:
    """Embeddings of a width of their own with a norm, and a projection where that differs from the
    hidden size."""
    width, hidden = view.integer("embedding_size"), view.integer("hidden_size")
    rows = view.integer("vocab_size") + (view.optional("type_vocab_size", minimum=0) or 0)
    rows += view.integer("max_position_embeddings") if positions else 0
    return (rows + 2) * width + ((width + 1) * hidden if always or width != hidden else 0)


POOLED: dict[str, Head | None] = {
    "ForMaskedLM": masked_lm_head,
    "ForCausalLM": masked_lm_head,
    "Model": pooler,
}
UNPOOLED: dict[str, Head | None] = {**POOLED, "Model": no_head}
