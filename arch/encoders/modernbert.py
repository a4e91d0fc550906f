"""Encoders after Llama: rotary positions, norms before each half, gated MLPs."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture
from ..attention.layer_kinds import full_every, full_first
from ..attention.more_parameters import output_gate_and_head_bias
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Layers, lm_head, no_head
from ..body.feed_forward import Mlp
from ..body.masked_lm import one_bias_head, vocabulary_matrix
from ..body.shared import MLP_BIAS
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..tensors.names import LLAMA_NAMES, MIXER_NAMES, MPT_NAMES, TensorNames, separate, under
from ..tying import never
from .bert import POOLED_BODY, UNPOOLED_BODY


def modernbert_head(body: Body, view: ConfigView, tied: bool) -> int:
    """A dense layer and a norm without a bias of their own, then the vocabulary."""
    hidden, vocab = view.integer("hidden_size"), view.integer("vocab_size")
    dense = hidden * (hidden + view.flag("classifier_bias"))
    norm = hidden * (1 + view.flag("norm_bias"))
    return (
        dense + norm + (vocab if view.flag("decoder_bias") else 0) + vocabulary_matrix(view, tied)
    )


def two_matrices_head(body: Body, view: ConfigView, tied: bool) -> int:
    """UltraBERT: to `prediction_head_size` and back."""
    width = view.integer("prediction_head_size")
    return 2 * width * view.integer("hidden_size") + vocabulary_matrix(view, tied)


def modernbert_norms(view: ConfigView, layer: Layer) -> int:
    """The embedding's norm stands in for that of the first attention."""
    return 1 if layer.index == 0 else 2


def norm_biases(view: ConfigView, layers: Layers) -> int:
    """ModernBERT's norms have a bias on demand: two in each layer but one, and two outside."""
    norms = 2 * len(layers) + 1
    return norms * view.integer("hidden_size") if view.flag("norm_bias") else 0


def esmc_norm_biases(view: ConfigView, layers: Layers) -> int:
    """Both norms of each layer have a bias, and the last one has none."""
    return 2 * len(layers) * view.integer("hidden_size")


def gte_mlp_biases(view: ConfigView, layers: Layers) -> int:
    """A bias of the last matrix of each MLP."""
    return len(layers) * view.integer("hidden_size")


def half_of_local_attention(view: ConfigView) -> int:
    """ModernBERT: `local_attention` counts both sides; `sliding_window` overrides it."""
    return view.optional("sliding_window") or view.integer("local_attention") // 2


NEOMME_NAMES = TensorNames(
    modules={
        **LLAMA_NAMES.modules,
        **under("self_attn.output_projection", o="o_proj", other="gate_proj"),
        "self_attn.exclusive_self_attention.alpha": "other",
    }
)
GTE_NAMES = TensorNames(modules=under("attention", qkv="qkv_proj", o="o_proj"))
MODERNBERT_NAMES = TensorNames(modules=under("attn", qkv="Wqkv", o="Wo"))
MODERNBERT_DECODER_NAMES = TensorNames(modules=separate("attn", o="Wo"))

ENCODER_BODY = Body(
    embedding_norms=1,
    classes={"ForMaskedLM": modernbert_head, "Model": no_head},
    default_class="ForMaskedLM",
)
MODERNBERT_BODY = replace(ENCODER_BODY, norms=modernbert_norms, mlp=MLP_BIAS, more=norm_biases)
UNNORMED_EMBEDDINGS = replace(ENCODER_BODY, embedding_norms=0, mlp=MLP_BIAS)

LIKE_LLAMA = Architecture(types=(), attention=replace(LLAMA_ATTENTION, cached=False))
GTE_LIKE = Architecture(
    types=(),
    attention=AttentionShape(qkv_bias=True, o_bias=True, cached=False, kv_heads_from="query heads"),
)
WINDOWED = LIKE_LLAMA.relative(
    attention={
        "fixed_head_dim": True,
        "kv_heads_from": "query heads",
        "kinds": full_first(3, "global_attn_every_n_layers"),
        "window": half_of_local_attention,
    }
)

ARCHITECTURES = (
    WINDOWED.relative(
        "modernbert",
        tensors=MODERNBERT_NAMES,
        body=MODERNBERT_BODY,
        gguf=(
            Gguf(
                architecture="modern-bert", windows=Windows(period=3, full_first=True), cached=False
            ),
        ),
    ),
    WINDOWED.relative(
        "modernbert-decoder",
        attention={"cached": True},
        tensors=MODERNBERT_DECODER_NAMES,
        body=replace(
            MODERNBERT_BODY,
            classes={"ForCausalLM": modernbert_head, "Model": no_head},
            default_class="ForCausalLM",
        ),
        rotary="halves",
    ),
    LIKE_LLAMA.relative(
        "eurobert",
        body=replace(
            UNNORMED_EMBEDDINGS,
            head_bias="mlp_bias",
            classes={"ForMaskedLM": lm_head, "Model": no_head},
        ),
        gguf=(Gguf(architecture="eurobert", cached=False),),
    ),
    LIKE_LLAMA.relative(
        "ultrabert",
        attention={"kinds": full_every(3)},
        body=replace(
            UNNORMED_EMBEDDINGS, classes={"ForMaskedLM": two_matrices_head, "Model": no_head}
        ),
    ),
    LIKE_LLAMA.relative(
        "esmc",
        config={"tied": never},
        attention={"norm": "q_and_k"},
        body=replace(
            UNNORMED_EMBEDDINGS,
            more=esmc_norm_biases,
            classes={"ForMaskedLM": one_bias_head, "Model": no_head},
        ),
    ),
    LIKE_LLAMA.relative(
        "neomme",
        attention={"kinds": full_every(6, last_full=True), "other": output_gate_and_head_bias},
        tensors=NEOMME_NAMES,
    ),
    GTE_LIKE.relative(
        "gte",
        tensors=GTE_NAMES,
        body=replace(
            UNPOOLED_BODY,
            positions=(),
            mlp=Mlp(),
            more=gte_mlp_biases,
            classes={"ForMaskedLM": one_bias_head, "Model": no_head},
        ),
    ),
    GTE_LIKE.relative(
        "jina_embeddings_v3",
        tensors=MIXER_NAMES,
        body=replace(POOLED_BODY, positions=()),
        gguf=(Gguf(architecture="jina-bert-v3", cached=False),),
    ),
    GTE_LIKE.relative(
        "nomic_bert",
        config={"defaults": {"tie_word_embeddings": True}},
        attention={"qkv_bias": False, "o_bias": False},
        tensors=MPT_NAMES,
        body=replace(UNPOOLED_BODY, positions=(), mlp=Mlp()),
        gguf=(
            Gguf(architecture="nomic-bert", cached=False),
            Gguf(architecture="nomic-bert-moe", cached=False),
        ),
    ),
    # Encoders of llama.cpp that transformers has no type of
    Architecture(
        types=(),
        gguf=(
            Gguf(architecture="jina-bert-v2", cached=False),
            Gguf(architecture="neo-bert", cached=False),
        ),
    ),
)
