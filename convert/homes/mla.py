"""Latents and one key that rotates, by a class that transformers and engines know (DeepSeek-V3).

Its norm of the latent does nothing but scale (`latent/mla_layer.py`) where its epsilon is 1e-6.
transformers takes that of every config, and engines the config's: so the config says 1e-6, and a
source with another one is scaled as a whole. What is added to the hidden states is times
sqrt(1e-6 / epsilon), so that all norms give what they gave.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from headcount.arch.gguf.spec import CACHE_DTYPE
from headcount.arch.rehoming.deepseek import (
    LIKE_LLAMA,
    TARGET,
    LikeLlama,
    Multipliers,
    misfit,
    read_old,
    theta,
)
from headcount.arch.rehoming.rehome import OldConfig
from headcount.model.latent_rank import full_rank, kept_elements
from headcount.model.mixers import Attention
from headcount.plan.engines.engine import find_engine
from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import AttentionTensors, HeadTensors
from ..latent.mla_names import DOWN, NORM, UP, attention_path
from ..latent.mla_shape import NORM_EPSILON, MlaShape
from ..latent.ranks import mla_rank
from ..latent.refusals import check_latent
from ..latent.size import LatentSize
from ..plan.cast import CastName
from ..plan.errors import CannotConvertError
from ..plan.heads import HeadsByLayer, heads_of
from ..plan.refusals.merging import check_mergeable
from ..plan.refusals.tensors import check_custom_layers
from ..plan.source import ConversionSource
from ..plan.steps import Dropped, Factor, Scale, Step, computed, copy
from .home import Draft, Home

_OTHERWISE = "leave out --home mla: a modelling file of ours holds its latents (home latent)"
_INSIDE = (
    *("input_layernorm.weight", "post_attention_layernorm.weight"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    *(f"self_attn.{part}_proj.weight" for part in "qkvo"),
)
# What float16 cannot hold: the way down to the small latent, and what its norm makes up for that.
# Folders of float16 are refused, and GGUF files have a type for each tensor.
_WIDE = (DOWN, NORM)
_EMBEDDING, _LAST_NORM, _HEAD = "embed_tokens.weight", "norm.weight", "lm_head.weight"
_KEPT = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "hidden_act"),
    *("num_attention_heads", "max_position_embeddings", "initializer_range", "use_cache"),
    *("attention_dropout", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
)
_AS_THEY_ARE = ("dtype", "torch_dtype", "transformers_version")


def mla(
    source: ConversionSource, size: LatentSize, dtype: CastName | None, *, gguf: bool = False
) -> Home:
    """`gguf`: the result is laid out as a GGUF file, in other types than its tensors are made in.
    Raises CannotConvertError, and HeadCountError for latents that leave no room for the key that
    rotates, or take more than what they take the place of."""
    like, old = _like(source)
    mixer = _mixer(source)
    scale = like.multipliers(old)
    rotated = mixer.head_dim
    shape = MlaShape(
        rank=mla_rank(source, mixer, size, CACHE_DTYPE if gguf else dtype, rotated),
        rotated=rotated,
        head_dim=mixer.head_dim,
        scaling=mixer.head_dim**-0.5 if scale.attention is None else scale.attention,
        theta=theta(old),
    )
    if not gguf:
        _check_dtype(source, dtype)
    heads = {
        where: heads_of(one, one.num_key_value_heads)
        for where, one in source.attention_map.mixers.items()
    }
    return Home(
        name="mla",
        reason="DeepSeek-V3's class has latent attention",
        heads=HeadsByLayer(layers=heads),
        draft=lambda: replace(
            _draft(source, shape, _Factors.of(old, scale)),
            notes=() if gguf else tuple(_notes(mixer, shape)),
        ),
        config=lambda: _config(source, like, old, shape, mixer),
        ranks=dict.fromkeys(heads, shape.rank + shape.rotated),
        mla=shape,
    )


def _like(source: ConversionSource) -> tuple[LikeLlama, OldConfig]:
    check_latent(source)
    like = LIKE_LLAMA.get(source.model_type)
    if like is None:
        raise CannotConvertError(
            f"{source.label}: latent attention is written as DeepSeek-V3's class, which computes"
            f" the layers of {', '.join(LIKE_LLAMA)} but not its own; {_OTHERWISE}"
        )
    old = read_old(source.config, source.model_type)
    reason = misfit(old)
    if reason is not None:
        raise CannotConvertError(f"{source.label}: {reason}; {_OTHERWISE}")
    return like, old


def _mixer(source: ConversionSource) -> Attention:
    """That of all layers."""
    found = set(source.attention_map.mixers.values())
    if len(found) > 1 or len(source.attention_map.mixers) < len(source.audit.spec.layers):
        raise CannotConvertError(
            f"{source.label}: its layers differ, and DeepSeek's class has one size for all;"
            f" {_OTHERWISE}"
        )
    (mixer,) = found
    if mixer.window is not None:
        raise CannotConvertError(
            f"{source.label}: DeepSeek's class has no window, as that of {mixer.window:,} tokens"
            f" here; {_OTHERWISE}"
        )
    if mixer.head_dim % 2:
        raise CannotConvertError(
            f"{source.label}: heads of {mixer.head_dim}, and DeepSeek's class rotates pairs;"
            f" {_OTHERWISE}"
        )
    return mixer


def _check_dtype(source: ConversionSource, dtype: CastName | None) -> None:
    """The latent in front of its norm is too small for float16."""
    stored = dtype or source.audit.spec.dtype
    if stored == "float16":
        raise CannotConvertError(
            f"{source.label}: float16 has no numbers as small as this home's; add --dtype bfloat16"
            " (or float32)"
        )


class _Factors:
    """What tensors outside the attention's are multiplied by, by the end of their names."""

    def __init__(self, added: float, embedding: float, last_norm: float) -> None:
        self.by_name = {
            "mlp.down_proj.weight": added,
            "self_attn.o_proj.weight": added,
            _EMBEDDING: embedding,
            _LAST_NORM: last_norm,
        }

    @classmethod
    def of(cls, old: OldConfig, scale: Multipliers) -> "_Factors":
        whole = float((NORM_EPSILON / old["rms_norm_eps"]) ** 0.5)
        embedding = whole * scale.embedding
        tied = embedding if old["tie_word_embeddings"] else 1.0
        return cls(whole * scale.residual, embedding, scale.logits / tied)

    def scaled(self, tensor: TensorInfo, inside: str) -> Step:
        factor = self.by_name.get(inside, 1.0)
        if factor == 1.0:
            return copy(tensor)
        return computed(tensor.name, (tensor,), tensor.shape, Scale(factor=factor))


def _notes(mixer: Attention, shape: MlaShape) -> Iterator[str]:
    """Which engine does not run so many elements of a token, and a size that it does."""
    sizes, asked = find_engine("vllm").latent_sizes, shape.rank + shape.rotated
    if asked not in sizes:
        most = min(kept_elements(mixer) - 1, full_rank(mixer) + shape.rotated)
        possible = [str(size) for size in sizes if shape.rotated < size <= most]
        instead = f"; --latent {' or '.join(possible)} would be" if possible else ""
        yield (
            f"vLLM does not serve it: {asked} elements of a token ({shape.rank} + {shape.rotated})"
            f" are not of a size that its latent attention runs"
            f" ({', '.join(map(str, sorted(sizes)))}){instead}"
        )


def _draft(source: ConversionSource, shape: MlaShape, factors: _Factors) -> Draft:
    check_mergeable(source)
    check_custom_layers(source)
    drafting = _Drafting(source, shape, factors)
    steps = {
        header.path.name: tuple(step for t in header.tensors for step in drafting.steps(t))
        for header in source.checkpoint.files
    }
    layers = tuple(sorted(index for index, _ in source.attention_map.mixers))
    return Draft(steps=steps, layers=layers, dropped=tuple(drafting.dropped))


class _Drafting:
    """One pass over the tensors."""

    def __init__(self, source: ConversionSource, shape: MlaShape, factors: _Factors) -> None:
        self._source, self._shape, self._factors = source, shape, factors
        self.dropped: list[Dropped] = []

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        """What stands in place of one tensor of the source."""
        held = self._source.attention_map.by_name.get(tensor.name)
        if held is not None and held.has_query_key_value:
            yield from self._attention(held)
            return
        standing = self._source.attention_map.standings.get(tensor.name)
        inside = tensor.name.removeprefix("model.")
        known = inside in (_EMBEDDING, _LAST_NORM, _HEAD)
        if standing is not None and standing.is_decoder:
            inside = standing.at.inside
            known = inside in _INSIDE
        if inside.endswith("rotary_emb.inv_freq"):
            self.dropped.append(Dropped(source=tensor, reason="a buffer, not a parameter"))
        elif not known:
            raise CannotConvertError(
                f"{self._source.folder}: {tensor.name!r} has no counterpart in DeepSeek's class;"
                f" {_OTHERWISE}"
            )
        else:
            yield self._factors.scaled(tensor, inside)

    def _attention(self, held: HeadTensors) -> Iterator[Step]:
        """The four new tensors stand where q stood."""
        if held.is_bias or held.parts not in (("q",), ("k",), ("v",)):
            raise CannotConvertError(
                f"{self._source.folder}: {held.tensor.name!r}: DeepSeek's class has no biases of"
                f" q, k and v that engines read, and no fused ones; {_OTHERWISE}"
            )
        if held.parts != ("q",):
            self.dropped.append(Dropped(source=held.tensor, reason="made of the latent"))
            return
        tensors = self._source.attention_map.attentions[held.where]
        made_of = tuple(h.tensor for h in tensors.projections if h.has_query_key_value)
        action = Factor(layer=held.place.index)
        for name, shape in _shapes(tensors, self._shape):
            made = computed(f"{attention_path(tensors)}{name}.weight", made_of, shape, action)
            is_wide = name in _WIDE and made.dtype == "F16"
            yield replace(made, dtype="F32") if is_wide else made


def _shapes(tensors: AttentionTensors, shape: MlaShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    mixer = tensors.mixer
    width, heads = mixer.in_features("k"), mixer.num_attention_heads
    yield "q_proj", (heads * (shape.head_dim + shape.rotated), width)
    yield DOWN, (shape.rank + shape.rotated, width)
    yield NORM, (shape.rank,)
    yield UP, (heads * (shape.head_dim + mixer.v_head_dim), shape.rank)


def _config(
    source: ConversionSource, like: LikeLlama, old: OldConfig, shape: MlaShape, mixer: Attention
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config of DeepSeek's class, and every key that was changed, added or dropped."""
    config = source.config
    kept = {key: config[key] if key in config else old[key] for key in _KEPT}
    kept = {key: value for key, value in kept.items() if key in config or value is not None}
    as_they_are = {k: source.config[k] for k in _AS_THEY_ARE if k in source.config}
    new = {
        "architectures": [_architecture(source, like)],
        "model_type": TARGET,
        **kept,
        "num_key_value_heads": mixer.num_attention_heads,
        "rms_norm_eps": NORM_EPSILON,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "rope_interleave": True,
        "attention_bias": False,
        "q_lora_rank": None,
        "kv_lora_rank": shape.rank,
        "qk_nope_head_dim": shape.head_dim,
        "qk_rope_head_dim": shape.rotated,
        "v_head_dim": mixer.v_head_dim,
        # All layers are dense: what says how experts are made is read and of no effect.
        "first_k_dense_replace": len(source.audit.spec.layers),
        "moe_layer_freq": 1,
        "n_routed_experts": 1,
        "n_shared_experts": 1,
        "num_experts_per_tok": 1,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": old["intermediate_size"],
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 0,
        **as_they_are,
    }
    return deepcopy(new), tuple(_changes(source.config, new))


def _architecture(source: ConversionSource, like: LikeLlama) -> str:
    given = source.config.get("architectures") or [f"{like.prefix}ForCausalLM"]
    name = str(given[0] if isinstance(given, list) else given)
    kind = name.removeprefix(like.prefix)
    if kind not in ("ForCausalLM", "Model"):
        raise CannotConvertError(
            f"{source.folder}: {name} has no counterpart among DeepSeek's classes; {_OTHERWISE}"
        )
    return f"DeepseekV3{kind}"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in (*new, *(key for key in old if key not in new)):
        if key not in new:
            yield f"{key}: {old[key]} -> dropped (it means nothing to {TARGET})"
        elif key not in old or old[key] != new[key]:
            yield f"{key}: {old.get(key, 'absent')} -> {new[key]}"
