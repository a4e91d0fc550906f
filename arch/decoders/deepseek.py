"""DeepSeek and its kin: latent attention, routed experts, an indexer, a compressed cache."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.model import limits
from headcount.model.mixers import CompressedAttention, LatentAttention, Mixer
from headcount.model.spec import Layer

from ..architecture import JOINED, LATENT, MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, SLIDING
from ..attention.layers import (
    decoder_layers,
    latent_attention,
    latent_layers,
    resolve_head_dim,
)
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Layers
from ..body.feed_forward import (
    Experts,
    LayerRule,
    Mlp,
    after,
    after_dense,
    matrices,
    typed,
)
from ..body.hyper_connections import hyper_connections
from ..body.shared import (
    DECODER_MLP_BIAS,
    DEEPSEEK_BODY,
    DEEPSEEK_EXPERTS,
    EXPERTS_AFTER_FIRST,
    LISTED_EXPERTS,
    MLP_BIAS,
)
from ..config_view import ConfigView
from ..gguf.compressed import compressed_layers
from ..gguf.form import Gguf, Indexer
from ..modules.names import DEEPSEEK_PREDICTION, FFN, MTP_PREDICTION
from ..states.hybrid import INDEXED, LAYER_TYPES, hybrid, hybrid_kinds
from ..states.indexed import add_indexer, indexed_latent_layers
from ..states.kinds import all_of
from ..states.mamba import FLOAT32
from ..tensors.names import HYBRID_MLA_NAMES, LLAMA_NAMES, MLA_NAMES, TensorNames, under

CSA = "compressed_sparse_attention"
HCA = "heavily_compressed_attention"
_RATIOS = {0: SLIDING, 4: CSA, 128: HCA}
_RATES = {CSA: ("compress_rate_csa", 4), HCA: ("compress_rate_hca", 128)}
# The sliding layers' sizes where the file has no `swa_*` keys.
_DOTS3_SLIDING = {
    **{"num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024},
    **{"head_dim": 256, "qk_nope_head_dim": 192, "v_head_dim": 128},
}


def with_query_gate(view: ConfigView, mixer: LatentAttention) -> LatentAttention:
    """A.X-K2: q and an output gate come out of two latents of q_lora_rank together."""
    return replace(mixer, query_gate=True)


def deepseek_v4_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`compress_ratios`, else two HCA layers and then HCA and CSA in turn."""
    ratios = view.integers("compress_ratios")
    if ratios is not None and len(ratios) >= count and set(ratios) <= set(_RATIOS):
        return tuple(_RATIOS[ratio] for ratio in ratios[:count])
    return tuple(CSA if i >= 2 and i % 2 else HCA for i in range(count))


def dots3_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Indexed where i < 2 or i % 4 == 1, else sliding."""
    wide = INDEXED if view.flag("use_dsa", absent=True) else "full_attention"
    slides = view.flag("use_sliding_window", absent=True)
    return tuple(wide if not slides or i < 2 or i % 4 == 1 else SLIDING for i in range(count))


def latent_layers_or_heads(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """`use_mla: false` has heads of keys and values (DeepSeek-VL2-Tiny, DeepSeek-OCR)."""
    if view.flag("use_mla", absent=True):
        return latent_layers(shape, view)
    return decoder_layers(replace(shape, fixed_head_dim=True), view)


def gated_norms(view: ConfigView, layers: Layers) -> int:
    """A.X K2: low-rank gates of the first norm of each layer, and of the second one in those that
    hold experts."""
    sparse = len(every_nth_after_first(view, len(layers)))
    gates = len(layers) + sparse
    return gates * 2 * view.integer("gated_norm_rank") * view.integer("hidden_size")


def longcat_experts(view: ConfigView, layers: Layers) -> int:
    """One set of experts for two attentions. The router chooses among zero experts, too, which hold
    nothing: room for their upper matrices, which transformers 5.24 makes, is in no file (180 B of
    parameters beside LongCat-Flash's 560 B)."""
    hidden, width = view.integer("hidden_size"), view.integer("expert_ffn_hidden_size")
    real = view.integer("n_routed_experts")
    all_of_them = real + (view.optional("zero_expert_num", minimum=0) or 0)
    each = real * matrices(hidden, width, gated=True) + hidden * all_of_them
    return len(layers) // 2 * each


def longcat_idle_experts(view: ConfigView, layers: Layers) -> int:
    """All but the experts that a token visits where it chooses no zero expert."""
    hidden, width = view.integer("hidden_size"), view.integer("expert_ffn_hidden_size")
    idle = max(0, view.integer("n_routed_experts") - view.integer("moe_topk"))
    return len(layers) // 2 * idle * matrices(hidden, width, gated=True)


def norm_after_experts(view: ConfigView, layers: Layers) -> int:
    """A.X K1: one more in the layers that hold experts."""
    sparse = every_nth_after_first(view, len(layers))
    return len(sparse) * view.integer("hidden_size")


def compressed_attention(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    heads = view.integer("num_attention_heads")
    return (
        CompressedAttention(
            hidden_size=view.integer("hidden_size"),
            num_attention_heads=heads,
            head_dim=resolve_head_dim(shape, view, heads),
            q_lora_rank=view.integer("q_lora_rank"),
            o_lora_rank=view.integer("o_lora_rank"),
            o_groups=view.integer("o_groups"),
            window=view.integer("sliding_window"),
            rate=None if kind == SLIDING else _compression_rate(view, kind),
            overlaps=kind == CSA,
            index_n_heads=view.integer("index_n_heads") if kind == CSA else 0,
            index_head_dim=view.integer("index_head_dim") if kind == CSA else 0,
        ),
    )


def _compression_rate(view: ConfigView, kind: str) -> int:
    key, default = _RATES[kind]
    return view.optional(key) or view.child("compress_rates").optional(kind) or default


def two_attentions_per_block(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """LongCat-Flash: a block holds two attentions, each with a cache of its own, which transformers
    numbers as layers."""
    count = 2 * view.integer("num_layers", maximum=limits.LAYERS.most)
    view = view.overridden({"num_hidden_layers": count}, derived="2 * num_layers")
    return tuple(
        replace(layer, number=layer.index // 2, nth=layer.index % 2)
        for layer in latent_layers(shape, view)
    )


def every_nth(of: LayerRule) -> LayerRule:
    """Of these every `moe_layer_freq`-th (DeepSeek's first model and A.X; other classes ignore the
    key)."""

    def rule(view: ConfigView, count: int) -> frozenset[int]:
        step = view.optional("moe_layer_freq") or 1
        return frozenset(i for i in of(view, count) if i % step == 0)

    return rule


every_nth_after_dense = every_nth(after_dense)
every_nth_after_first = typed(every_nth(after("first_k_dense_replace", 1)))


def dots3_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """dots3: sliding layers have heads and ranks of their own, `swa_*` or by layer in
    `per_layer_config`; the rotated key is normed, there is a gate per head, and the indexer's keys
    stay float32."""
    kinds = hybrid_kinds(shape.kinds, view, {INDEXED: None, SLIDING: None, FULL: None})
    own = view.get("per_layer_config")
    by_layer: Mapping[Any, Any] = own if isinstance(own, dict) else {}
    wide = {FULL: INDEXED} if view.flag("use_dsa", absent=True) else {INDEXED: FULL}
    if own is not None:
        wide = {}
    kinds = tuple(wide.get(kind, kind) for kind in kinds)
    return tuple(
        Layer(index=i, mixers=(_dots3_mixer(view, kind, by_layer.get(str(i)) or by_layer.get(i)),))
        for i, kind in enumerate(kinds)
    )


def _dots3_mixer(view: ConfigView, kind: str, own: Any) -> LatentAttention:
    if isinstance(own, dict):
        view = view.overridden(own)
    elif kind == SLIDING:
        swa = {k: view.optional(f"swa_{k}") or v for k, v in _DOTS3_SLIDING.items()}
        rope = view.optional("swa_qk_rope_head_dim") or swa["head_dim"] - swa["qk_nope_head_dim"]
        view = view.overridden({**swa, "qk_rope_head_dim": rope})
    mixer = latent_attention(view)
    if kind == SLIDING:
        window = view.optional("sliding_window") or view.optional("sliding_window_size") or 512
        mixer = replace(mixer, window=window)
    mixer = replace(
        mixer,
        norm_parameters=mixer.qk_rope_head_dim,
        other_parameters=mixer.hidden_size * mixer.num_attention_heads,
    )
    return add_indexer(view, mixer, bits=FLOAT32) if kind == INDEXED else mixer


SARVAM_NAMES = TensorNames(
    modules=under("attention", qkv="query_key_value", o="dense")
    | {"attention.query_layernorm": "norm", "attention.key_layernorm": "norm"}
    | {**LLAMA_NAMES.modules}  # those of its class
)
LONGCAT_NAMES = TensorNames(
    modules={path.replace("self_attn.", "self_attn.#."): p for path, p in MLA_NAMES.modules.items()}
)
DEEPSEEK_V4_NAMES = TensorNames(
    modules={
        path: part
        for stem in ("attn", "self_attn")
        for path, part in {
            **under(stem, q_a="wq_a", q_b="wq_b", k="wkv", o_a="wo_a", o_b="wo_b"),
            **under(stem, q_a="q_a_proj", q_b="q_b_proj", k="kv_proj", o_a="o_a_proj"),
            **{f"{stem}.o_b_proj": "o_b"},
            **dict.fromkeys((f"{stem}.{n}" for n in ("norm", "q_norm")), "norm"),
            **dict.fromkeys((f"{stem}.{n}" for n in ("kv_norm", "q_a_norm")), "norm"),
        }.items()
    },
    rest="other",
)
DOTS3_NAMES = HYBRID_MLA_NAMES.also({"self_attn.k_rope_only_layernorm": "norm"})

# The code of the first one is published with its weights.
DEEPSEEK = Architecture(
    types=("deepseek",),
    attention=LLAMA_ATTENTION,
    body=Body(experts=replace(DEEPSEEK_EXPERTS, layers=every_nth_after_dense), named=True),
)
DEEPSEEK_V2 = DEEPSEEK.relative(
    "deepseek_v2",
    attention={"build": latent_layers_or_heads},
    body={"mlp": MLP_BIAS, "experts": DEEPSEEK_EXPERTS},
    tensors=MLA_NAMES.also(LLAMA_NAMES.modules),
    conversion=Conversion(width_checked=True),
)
DEEPSEEK_V3 = DEEPSEEK_V2.relative(
    "deepseek_v3",
    attention={"build": latent_layers},
    body={"mlp": Mlp()},
    tensors=MLA_NAMES,
    prediction=DEEPSEEK_PREDICTION,
)
DEEPSEEK_V32 = Architecture(
    types=("deepseek_v32",),
    config=ConfigKeys(overriding={"n_routed_experts": ("num_experts",)}),
    attention=AttentionShape(build=indexed_latent_layers(), kinds=all_of(INDEXED)),
    body=Body(experts=LISTED_EXPERTS),
    tensors=HYBRID_MLA_NAMES,
    prediction=DEEPSEEK_PREDICTION,
    gguf=(Gguf(architecture="deepseek32", indexer=Indexer()),),
)
EXPERTS_EVERY_NTH = replace(EXPERTS_AFTER_FIRST, layers=every_nth_after_first)

ARCHITECTURES = (
    DEEPSEEK,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    Architecture(
        types=("deepseek_v4",),
        config=ConfigKeys(aliases=LAYER_TYPES, unused=("num_hash_layers",)),
        attention=AttentionShape(
            build=hybrid(dict.fromkeys((SLIDING, CSA, HCA), compressed_attention)),
            kinds=deepseek_v4_kinds,
        ),
        body=Body(
            mlp=MLP_BIAS,
            experts=Experts(count="n_routed_experts", layers=after(0), shared=1),
            more=hyper_connections(mixing=True, head=True),
        ),
        tensors=DEEPSEEK_V4_NAMES,
        spellings=("deepseek_ref",),  # sgl-project's files in FP8
        feed_forward=FFN,
        prediction=MTP_PREDICTION._replace(name="mtp.0"),
        gguf=(Gguf(architecture="deepseek4", reads=compressed_layers),),
    ),
    DEEPSEEK_V3.relative("youtu", "minicpm3", body=DECODER_MLP_BIAS),
    DEEPSEEK_V3.relative("axk1", body=Body(experts=EXPERTS_EVERY_NTH, more=norm_after_experts)),
    DEEPSEEK_V32.relative(
        "axk2",
        attention={"build": indexed_latent_layers(with_query_gate)},
        body=Body(experts=EXPERTS_EVERY_NTH, more=gated_norms),
        verification=JOINED,
    ),
    DEEPSEEK_V3.relative(
        "sarvam_mla", config=ConfigKeys(unused=("q_head_dim",)), body=DEEPSEEK_BODY
    ),
    Architecture(
        types=("sarvam_moe",),
        attention=AttentionShape(qkv_bias="attention_bias", norm="head", norm_if="use_qk_norm"),
        body=DEEPSEEK_BODY,
        tensors=SARVAM_NAMES,
    ),
    DEEPSEEK_V3.relative(
        "longcat_flash",
        attention={"build": two_attentions_per_block},
        body=Body(
            mlp=Mlp(width="ffn_hidden_size"), more=longcat_experts, idle_more=longcat_idle_experts
        ),
        tensors=LONGCAT_NAMES,
    ),
    MULTIMODAL.relative("dots3_note", conversion=LATENT),
    Architecture(
        types=("dots3_note_text",),
        attention=AttentionShape(build=dots3_layers, kinds=dots3_kinds),
        conversion=LATENT,
        tensors=DOTS3_NAMES,
        gguf=(Gguf(architecture="dots3note", indexer=Indexer()),),
    ),
)
