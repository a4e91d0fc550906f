"""BERT and its kin: encoders with learned positions, most of them decoders with `is_decoder`."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture, Conversion
from ..attention.layers import attention, layer_count
from ..attention.more_parameters import value_convolution
from ..attention.shape import AttentionShape
from ..attention.shared import MHA_BIASED
from ..body.body import WEIGHT_AND_BIAS, Body, Head, Layers, no_head, one_per_mixer
from ..body.feed_forward import matrices
from ..body.masked_lm import (
    POOLED,
    UNPOOLED,
    always_pooled,
    masked_lm_head,
    one_bias_head,
    pooler,
    pretraining_head,
    small_embeddings,
    small_head,
    vocabulary_matrix,
)
from ..body.shared import PLAIN
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..tensors.names import BERT_NAMES, TensorNames, under
from ..tying import never


def biased_twice_head(body: Body, view: ConfigView, tied: bool) -> int:
    """The vocabulary with a bias, and untied a second one (BertGeneration)."""
    vocab = view.integer("vocab_size")
    return vocab if tied else 2 * vocab + vocabulary_matrix(view, tied)


def electra_head(body: Body, view: ConfigView, tied: bool) -> int:
    """The same with one bias, tied or not."""
    width, vocab = view.integer("embedding_size"), view.integer("vocab_size")
    return small_head(body, view, True) + (0 if tied else vocab * width)


def rembert_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer to `output_embedding_size`, a norm there, and a vocabulary that is never the
    embedding."""
    hidden, width = view.integer("hidden_size"), view.integer("output_embedding_size")
    return (hidden + 1) * width + 2 * width + view.integer("vocab_size") * (width + 1)


def electra_embeddings(view: ConfigView, layers: Layers) -> int:
    return small_embeddings(view)


def albert_embeddings_and_blocks(view: ConfigView, layers: Layers) -> int:
    """A group may hold several blocks of attention, MLP and norms."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    block = matrices(hidden, width, gated=False, bias=True) + 4 * hidden
    more = (view.integer("inner_group_num") - 1) * view.integer("num_hidden_groups")
    return small_embeddings(view, always=True) + more * block


def roformer_embeddings(view: ConfigView, layers: Layers) -> int:
    """The table of rotary positions, as wide as a head, is a parameter that is not learned."""
    d = view.integer("hidden_size") // view.integer("num_attention_heads")
    return small_embeddings(view, positions=False) + view.integer("max_position_embeddings") * d


def rembert_embeddings(view: ConfigView, layers: Layers) -> int:
    width, hidden = view.integer("input_embedding_size"), view.integer("hidden_size")
    rows = sum(
        view.integer(name) for name in ("vocab_size", "max_position_embeddings", "type_vocab_size")
    )
    return (rows + 2) * width + (width + 1) * hidden


def dpr_projection(view: ConfigView, layers: Layers) -> int:
    """A projection on demand."""
    out = view.optional("projection_dim", minimum=0) or 0
    return (view.integer("hidden_size") + 1) * out


def ernie_task_types(view: ConfigView, layers: Layers) -> int:
    """Types of tasks, on demand."""
    rows = view.integer("task_type_vocab_size") if view.flag("use_task_id") else 0
    return rows * view.integer("hidden_size")


def layoutlm_embeddings(view: ConfigView, layers: Layers) -> int:
    """Positions on the page: x, y, height and width; and a pooler in every class."""
    pages = 4 * view.integer("max_2d_position_embeddings") * view.integer("hidden_size")
    return pages + always_pooled(view, layers)


def tapas_token_types(view: ConfigView, layers: Layers) -> int:
    """Seven tables of token types."""
    sizes = view.integers("type_vocab_sizes") or ()
    return sum(sizes) * view.integer("hidden_size")


def esm_contacts_and_positions(view: ConfigView, layers: Layers) -> int:
    """A regression of contacts over the heads of all layers, and positions unless they rotate."""
    heads = view.integer("num_attention_heads")
    hidden = view.integer("hidden_size")
    learned = view.get("position_embedding_type") == "absolute"
    positions = view.integer("max_position_embeddings") * hidden if learned else 0
    norm = 2 * hidden if view.flag("emb_layer_norm_before") else 0
    return len(layers) * heads + 1 + positions + norm


def albert_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """ALBERT: all layers of a group run the same weights, which its first layer holds."""
    own = replace(attention(shape, view), cached=False)
    again = replace(own, owns_parameters=False)
    count, groups = layer_count(view), view.integer("num_hidden_groups")
    inner = view.integer("inner_group_num")
    found: list[Layer] = []
    for index in range(count):
        group = index * groups // count
        is_first = index == 0 or group != (index - 1) * groups // count
        mixers = (own if is_first else again,) * inner
        found.append(Layer(index=index, mixers=mixers, stack="encoder", number=group))
    return tuple(found)


ALBERT_NAMES = TensorNames(
    modules=under("albert_layers.#.attention", q="query", k="key", v="value", o="dense")
    | {"albert_layers.#.attention.LayerNorm": ""}
)
# A norm before the attention, under its own module.
BERT_NORM_FIRST_NAMES = TensorNames(
    modules={**BERT_NAMES.modules, "attention.ln": "", "attention.LayerNorm": ""},
    cross={**BERT_NAMES.cross, "crossattention.ln": "", "crossattention.LayerNorm": ""},
)

BERT_CLASSES: dict[str, Head | None] = {
    "ForMaskedLM": masked_lm_head,
    "BertLMHeadModel": masked_lm_head,
    "RobertaForCausalLM": masked_lm_head,
    "BertForPreTraining": pretraining_head,
    "BertModel": pooler,
    "RobertaModel": pooler,
}
BERT_BODY = Body(
    norm=WEIGHT_AND_BIAS,
    norms=one_per_mixer,
    final_norms=0,
    embedding_norms=1,
    positions=("max_position_embeddings",),
    token_types="type_vocab_size",
    mlp=PLAIN,
    classes=BERT_CLASSES,
    default_class="ForMaskedLM",
)
POOLED_BODY = replace(BERT_BODY, classes=POOLED)
UNPOOLED_BODY = replace(BERT_BODY, classes=UNPOOLED)
WITHOUT_EMBEDDINGS = replace(
    UNPOOLED_BODY, vocabulary=None, embedding_norms=0, positions=(), token_types=None
)

BERT = Architecture(
    types=("bert", "roberta"),
    attention=replace(MHA_BIASED, cached="is_decoder", cross="add_cross_attention"),
    body=replace(BERT_BODY, named=True),
    tensors=BERT_NAMES,
    rotary="none",
    gguf=(Gguf(architecture="bert", cached=False),),
)
# Without a decoder's form, and what else it keeps is not known.
PLAIN_BERT = BERT.relative(attention={"cached": False, "cross": False}, body=None, rotary=None)

ARCHITECTURES = (
    BERT,
    # As BERT, with other embeddings or heads
    BERT.relative("camembert", "data2vec-text", "xlm-roberta", body=POOLED_BODY),
    BERT.relative("roc_bert", "xmod", body=None),
    BERT.relative("ernie", body=replace(POOLED_BODY, more=ernie_task_types)),
    BERT.relative("xlm-roberta-xl", body=replace(POOLED_BODY, final_norms=1, embedding_norms=0)),
    BERT.relative(
        "bert-generation",
        body=replace(
            UNPOOLED_BODY,
            token_types=None,
            classes={"Decoder": biased_twice_head, "Encoder": no_head},
            default_class="BertGenerationDecoder",
        ),
    ),
    BERT.relative(
        "big_bird",
        attention={"qkv_bias": "use_bias"},
        body=replace(UNPOOLED_BODY, more=always_pooled),
    ),
    BERT.relative(
        "esm",
        body=replace(
            UNPOOLED_BODY,
            token_types=None,
            positions=(),
            embedding_norms=0,
            final_norms=1,
            more=esm_contacts_and_positions,
            classes={"ForMaskedLM": one_bias_head, "Model": pooler},
        ),
        rotary=None,
    ),
    BERT.relative("megatron-bert", tensors=BERT_NORM_FIRST_NAMES, body=POOLED_BODY),
    BERT.relative(
        "roberta-prelayernorm",
        tensors=BERT_NORM_FIRST_NAMES,
        body=replace(POOLED_BODY, final_norms=1),
    ),
    # Embeddings of a width of their own
    BERT.relative(
        "electra",
        body=replace(
            WITHOUT_EMBEDDINGS,
            more=electra_embeddings,
            classes={**UNPOOLED, "ForMaskedLM": electra_head, "ForCausalLM": electra_head},
        ),
    ),
    BERT.relative(
        "rembert",
        config={"tied": never},
        body=replace(
            WITHOUT_EMBEDDINGS,
            more=rembert_embeddings,
            classes={"ForMaskedLM": rembert_head, "ForCausalLM": rembert_head, "Model": pooler},
        ),
    ),
    BERT.relative(
        "roformer",
        body=replace(
            WITHOUT_EMBEDDINGS,
            more=roformer_embeddings,
            classes={"ForMaskedLM": small_head, "ForCausalLM": small_head, "Model": no_head},
        ),
        rotary="pairs",
        conversion=Conversion(changes_values="rotary_value"),
    ),
    PLAIN_BERT.relative(
        "albert",
        attention={"build": albert_layers},
        tensors=ALBERT_NAMES,
        body=replace(
            WITHOUT_EMBEDDINGS,
            norms=2,
            more=albert_embeddings_and_blocks,
            classes={"ForMaskedLM": small_head, "Model": pooler},
        ),
    ),
    # Encoders alone
    PLAIN_BERT.relative("ibert", body=POOLED_BODY),
    PLAIN_BERT.relative("layoutlm", body=replace(UNPOOLED_BODY, more=layoutlm_embeddings)),
    PLAIN_BERT.relative("mra", body=replace(UNPOOLED_BODY, position_offset=2)),
    PLAIN_BERT.relative(
        "yoso",
        attention={"other": value_convolution("conv_window")},
        body=replace(UNPOOLED_BODY, position_offset=2),
    ),
    PLAIN_BERT.relative(
        "tapas", body=replace(POOLED_BODY, token_types=None, more=tapas_token_types)
    ),
    PLAIN_BERT.relative("splinter", body=UNPOOLED_BODY),
    PLAIN_BERT.relative(
        "dpr",
        body=replace(
            UNPOOLED_BODY,
            more=dpr_projection,
            classes={"Encoder": no_head},
            default_class="DPRQuestionEncoder",
        ),
    ),
    PLAIN_BERT.relative("bros", "layoutlmv3", "markuplm", "visual_bert"),
)
