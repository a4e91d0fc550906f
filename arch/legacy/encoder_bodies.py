"""What encoders hold beside the common shape: the callables of the rows in body_rows.encoders."""

from headcount.model.spec import Layer

from ..body.body import Body, Head, Layers, no_head
from ..body.feed_forward import matrices
from ..config_view import ConfigView
from .extras import masked_lm_head, pooler

# --- heads and poolers -----------------------------------------------------------------------


def one_bias_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer and a norm, then the vocabulary with one bias, tied or not."""
    return masked_lm_head(body, view, True) + _matrix(view, tied)


def biased_twice_head(body: Body, view: ConfigView, tied: bool) -> int:
    """The vocabulary with a bias, and untied a second one (BertGeneration)."""
    vocab = view.integer("vocab_size")
    return vocab if tied else 2 * vocab + _matrix(view, tied)


def modernbert_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer and a norm without a bias of their own, then the vocabulary."""
    hidden, vocab = view.integer("hidden_size"), view.integer("vocab_size")
    dense = hidden * (hidden + view.flag("classifier_bias"))
    norm = hidden * (1 + view.flag("norm_bias"))
    return dense + norm + (vocab if view.flag("decoder_bias") else 0) + _matrix(view, tied)


def small_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer to the width of the embeddings, a norm there, and the vocabulary."""
    hidden, width = view.integer("hidden_size"), view.integer("embedding_size")
    vocab = view.integer("vocab_size")
    return (hidden + 1) * width + 2 * width + vocab + (0 if tied else vocab * (width + 1))


def electra_head(body: Body, view: ConfigView, tied: bool) -> int:
    """The same with one bias, tied or not."""
    width, vocab = view.integer("embedding_size"), view.integer("vocab_size")
    return small_head(body, view, True) + (0 if tied else vocab * width)


def deberta_head(body: Body, view: ConfigView, tied: bool) -> int:
    """BERT's, or without `legacy` one whose matrix is always the embedding."""
    return masked_lm_head(body, view, tied or view.get("legacy") is False)


def rembert_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer to `output_embedding_size`, a norm there, and a vocabulary that is never the
    embedding."""
    hidden, width = view.integer("hidden_size"), view.integer("output_embedding_size")
    return (hidden + 1) * width + 2 * width + view.integer("vocab_size") * (width + 1)


def two_matrices_head(body: Body, view: ConfigView, tied: bool) -> int:
    """UltraBERT: to `prediction_head_size` and back."""
    width = view.integer("prediction_head_size")
    return 2 * width * view.integer("hidden_size") + _matrix(view, tied)


def _matrix(view: ConfigView, tied: bool) -> int:
    return 0 if tied else view.integer("vocab_size") * view.integer("hidden_size")


def always_pooled(view: ConfigView, layers: Layers) -> int:
    """A pooler in every class."""
    hidden = view.integer("hidden_size")
    return hidden * (hidden + 1)


POOLED: dict[str, Head | None] = {
    "ForMaskedLM": masked_lm_head,
    "ForCausalLM": masked_lm_head,
    "Model": pooler,
}
UNPOOLED: dict[str, Head | None] = {**POOLED, "Model": no_head}

# --- embeddings ------------------------------------------------------------------------------


def small_embeddings(view: ConfigView, *, positions: bool = True, always: bool = False) -> int:
    """Embeddings of a width of their own with a norm, and a projection where that differs from the
    hidden size."""
    width, hidden = view.integer("embedding_size"), view.integer("hidden_size")
    rows = view.integer("vocab_size") + (view.optional("type_vocab_size", minimum=0) or 0)
    rows += view.integer("max_position_embeddings") if positions else 0
    return (rows + 2) * width + ((width + 1) * hidden if always or width != hidden else 0)


def electra(view: ConfigView, layers: Layers) -> int:
    return small_embeddings(view)


def albert(view: ConfigView, layers: Layers) -> int:
    """A group may hold several blocks of attention, MLP and norms."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    block = matrices(hidden, width, gated=False, bias=True) + 4 * hidden
    more = (view.integer("inner_group_num") - 1) * view.integer("num_hidden_groups")
    return small_embeddings(view, always=True) + more * block


def roformer(view: ConfigView, layers: Layers) -> int:
    """The table of rotary positions, as wide as a head, is a parameter that is not learned."""
    d = view.integer("hidden_size") // view.integer("num_attention_heads")
    return small_embeddings(view, positions=False) + view.integer("max_position_embeddings") * d


def rembert(view: ConfigView, layers: Layers) -> int:
    width, hidden = view.integer("input_embedding_size"), view.integer("hidden_size")
    rows = sum(
        view.integer(name) for name in ("vocab_size", "max_position_embeddings", "type_vocab_size")
    )
    return (rows + 2) * width + (width + 1) * hidden


def dpr(view: ConfigView, layers: Layers) -> int:
    """A projection on demand."""
    out = view.optional("projection_dim", minimum=0) or 0
    return (view.integer("hidden_size") + 1) * out


def ernie(view: ConfigView, layers: Layers) -> int:
    """Types of tasks, on demand."""
    rows = view.integer("task_type_vocab_size") if view.flag("use_task_id") else 0
    return rows * view.integer("hidden_size")


def layoutlm(view: ConfigView, layers: Layers) -> int:
    """Positions on the page: x, y, height and width; and a pooler in every class."""
    pages = 4 * view.integer("max_2d_position_embeddings") * view.integer("hidden_size")
    return pages + always_pooled(view, layers)


def modernbert_norms(view: ConfigView, layer: Layer) -> int:
    """The embedding's norm stands in for that of the first attention."""
    return 1 if layer.index == 0 else 2


def norm_biases(view: ConfigView, layers: Layers) -> int:
    """ModernBERT's norms have a bias on demand: two in each layer but one, and two outside."""
    norms = 2 * len(layers) + 1
    return norms * view.integer("hidden_size") if view.flag("norm_bias") else 0


def esmc(view: ConfigView, layers: Layers) -> int:
    """Both norms of each layer have a bias, and the last one has none."""
    return 2 * len(layers) * view.integer("hidden_size")


def languages(view: ConfigView, layers: Layers) -> int:
    """XLM: an embedding of each language where there are several."""
    count = view.optional("n_langs") or 1
    used = count > 1 and view.flag("use_lang_emb")
    return count * view.integer("hidden_size") if used else 0


def gte(view: ConfigView, layers: Layers) -> int:
    """A bias of the last matrix of each MLP."""
    return len(layers) * view.integer("hidden_size")


def mpnet(view: ConfigView, layers: Layers) -> int:
    """One table of relative positions for all layers."""
    buckets = view.integer("relative_attention_num_buckets")
    return buckets * view.integer("num_attention_heads")


def tapas(view: ConfigView, layers: Layers) -> int:
    """Seven tables of token types."""
    sizes = view.integers("type_vocab_sizes") or ()
    return sum(sizes) * view.integer("hidden_size")


def esm(view: ConfigView, layers: Layers) -> int:
    """A regression of contacts over the heads of all layers, and positions unless they rotate."""
    heads = view.integer("num_attention_heads")
    hidden = view.integer("hidden_size")
    learned = view.get("position_embedding_type") == "absolute"
    positions = view.integer("max_position_embeddings") * hidden if learned else 0
    norm = 2 * hidden if view.flag("emb_layer_norm_before") else 0
    return len(layers) * heads + 1 + positions + norm


def deberta(view: ConfigView, layers: Layers) -> int:
    """Positions and token types where the config has them, and a table of relative positions."""
    hidden = view.integer("hidden_size")
    biased = view.get("position_biased_input") is not False
    rows = view.integer("max_position_embeddings") if biased else 0
    rows += view.optional("type_vocab_size", minimum=0) or 0
    if view.flag("relative_attention"):
        rows += 2 * _relative(view)
    return rows * hidden


def deberta_v2(view: ConfigView, layers: Layers) -> int:
    """The same; buckets may bound the table, which a norm may follow, and a convolution."""
    hidden, rows = view.integer("hidden_size"), 0
    if view.flag("relative_attention"):
        buckets = view.optional("position_buckets", minimum=-1) or -1
        rows = 2 * (buckets - _relative(view)) if buckets > 0 else 0
    norms = view.get("norm_rel_ebd")
    kernel = view.optional("conv_kernel_size", minimum=0) or 0
    convolution = hidden * (hidden * kernel + 1) + 2 * hidden if kernel else 0
    norm = 2 * hidden if view.flag("relative_attention") and norms == "layer_norm" else 0
    return deberta(view, layers) + rows * hidden + norm + convolution


def _relative(view: ConfigView) -> int:
    limit = view.optional("max_relative_positions", minimum=-1)
    if limit is None or limit < 1:
        limit = view.integer("max_position_embeddings")
    return limit
