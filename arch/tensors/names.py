"""Names of attention tensors on disk: which module of a layer is which part.

Only the end of a name matters, after the layer's number: `self_attn.k_proj` in
`language_model.model.layers.17.self_attn.k_proj.weight`. A fused projection is written with the
letters of what it holds, in order, such as `qkv`; g is a gate on what o reads. What stands behind
an underscore tells several matrices of one part apart, such as `q_a` and `v_delayed`.

Here are the names that several lineages share; each has its others beside its architectures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TensorNames:
    """`modules` maps a module's path in its layer to the part it computes, `cross` does so for
    cross-attention. In a path `#` is the number of an attention among several in one layer. `near`
    are the prefixes under which nothing unknown may stand. `transposed`: the weights are stored
    [in, out] (GPT-2's Conv1D), but for modules that are `upright`. `rest` is the part of what
    stands there without being named, such as an indexer; None: it is a stranger. `key_value` are
    modules beside the projections that hold numbers of K or V heads: of which, and along which
    axis. `split`: the modules of k and v that the class cuts a fused tensor into when it reads it.
    Where no name is `known`, headers are not sorted to layers.

    `fused` says how a `qkv` lies: `parts` is [q | k | v], `heads` has for each K/V head its query
    heads, its key and its value, `quarters` has four times [q | v | k] (CodeGen). Without the flag
    `parts_if` of the config, where it names one, it is `heads`."""

    modules: Mapping[str, str]
    cross: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None
    transposed: bool = False
    fused: str = "parts"
    parts_if: str | None = None
    upright: frozenset[str] = frozenset()
    key_value: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    split: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    known: bool = True

    def fused_by(self, config: Mapping[str, Any]) -> str:
        """How a fused projection lies in a model of this config."""
        return self.fused if self.parts_if is None or config.get(self.parts_if) else "heads"

    def turns(self, module: str) -> bool:
        """Whether the matrix of `module` is stored [in, out]."""
        return self.transposed and module not in self.upright

    def also(self, modules: Mapping[str, str], **changes: Any) -> "TensorNames":
        """The same names and `modules`, with `changes` in other fields."""
        return replace(self, modules={**self.modules, **modules}, **changes)

    @cached_property
    def near(self) -> frozenset[str]:
        """The first words of all module paths but those that a layer shares with its MLP."""
        return _prefixes((*self.modules, *self.cross))

    @cached_property
    def near_cross(self) -> frozenset[str]:
        """Those of cross-attention alone."""
        return _prefixes(self.cross) - _prefixes(self.modules)

    @cached_property
    def numbered(self) -> bool:
        """Whether a layer holds several attentions with numbers."""
        return any("#" in path for path in (*self.modules, *self.cross))


def _prefixes(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path.rsplit(".", 1)[0] + "." for path in paths if "." in path)


# Buffers that older files carry under an attention module; no parameters.
BUFFERS = frozenset({"bias", "masked_bias", "rotary_emb.inv_freq", "inv_freq", "attn_dropout"})


def under(prefix: str, **parts: str) -> dict[str, str]:
    """`under("self_attn", q="q_proj")` -> {"self_attn.q_proj": "q"}."""
    return {f"{prefix}.{module}": part for part, module in parts.items()}


def separate(prefix: str, o: str = "o_proj", **more: str) -> dict[str, str]:
    return under(prefix, q="q_proj", k="k_proj", v="v_proj", o=o, **more)


QK_NORM = {"self_attn.q_norm": "norm", "self_attn.k_norm": "norm"}

LLAMA_NAMES = TensorNames(
    modules={**separate("self_attn"), **QK_NORM, "self_attn.sinks": "other"},
    cross=separate("cross_attn") | {"cross_attn.q_norm": "norm", "cross_attn.k_norm": "norm"},
)
# The same with what else some classes keep beside their projections.
GATE_PROJ_NAMES = LLAMA_NAMES.also({"self_attn.gate_proj": "other"})
G_PROJ_NAMES = LLAMA_NAMES.also({"self_attn.g_proj": "other"})
MLA_NAMES = TensorNames(
    modules=under(
        "self_attn", q="q_proj", q_a="q_a_proj", kv_a="kv_a_proj_with_mqa", kv_b="kv_b_proj"
    )
    | {
        "self_attn.q_b_proj": "q",
        "self_attn.o_proj": "o",
        "self_attn.q_a_layernorm": "norm",
        "self_attn.kv_a_layernorm": "norm",
    }
)
GPT2_NAMES = TensorNames(
    modules=under("attn", qkv="c_attn", o="c_proj"),
    cross=under("crossattention", q="q_attn", kv="c_attn", o="c_proj"),
    transposed=True,
)
BLOOM_NAMES = TensorNames(
    modules=under("self_attention", qkv="query_key_value", o="dense"), fused="heads"
)
MPT_NAMES = TensorNames(modules=under("attn", qkv="Wqkv", o="out_proj"))
MIXER_NAMES = TensorNames(modules=under("mixer", qkv="Wqkv", o="out_proj"))
BART_NAMES = TensorNames(
    modules=separate("self_attn", o="out_proj") | {"self_attn.inner_attn_ln": "norm"},  # Kosmos-2
    cross=separate("encoder_attn", o="out_proj") | {"encoder_attn.inner_attn_ln": "norm"},
)


def _bert(prefix: str) -> dict[str, str]:
    return under(f"{prefix}.self", q="query", k="key", v="value") | {
        f"{prefix}.output.dense": "o",
        f"{prefix}.output.LayerNorm": "",
        f"{prefix}.output.norm": "",
    }


BERT_NAMES = TensorNames(modules=_bert("attention"), cross=_bert("crossattention"))
# No name of a tensor is known: parts follow the config.
UNKNOWN_NAMES = TensorNames(modules={}, known=False)
# Layers that hold no attention, and are numbered as in other models.
NO_ATTENTION_NAMES = TensorNames(modules={})


# Attention beside recurrent mixers, or with an indexer or gates that no part names.
HYBRID_NAMES = TensorNames(modules=LLAMA_NAMES.modules, rest="other")


HYBRID_MLA_NAMES = TensorNames(modules=MLA_NAMES.modules, rest="other")
