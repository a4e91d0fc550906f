"""XLNet, Reformer and CPM-Ant, which keep something else than keys and values alone."""

from dataclasses import replace

from headcount.model import limits
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, State
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layers import attention, equal_layers, layer_count
from ..attention.shape import AttentionShape
from ..attention.shared import MHA
from ..body.body import WEIGHT_AND_BIAS, Body, Layers
from ..body.feed_forward import Mlp
from ..config_view import ConfigView
from ..tensors.names import TensorNames, under
from ..tying import never


def cpmant_embeddings(view: ConfigView, layers: Layers) -> int:
    """Prompts, segments and a table of relative positions."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    prompts = view.integer("prompt_types") * view.integer("prompt_length", minimum=0)
    segments = view.integer("segment_types")
    buckets = view.integer("position_bias_num_buckets") + segments**2
    return (prompts + segments) * hidden + buckets * heads


def xlnet_mask(view: ConfigView, layers: Layers) -> int:
    return view.integer("hidden_size")


def cpmant_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """CPM-Ant: `prompt_length` tokens of a learned prompt stand in front of the text."""
    heads, d = view.integer("num_attention_heads"), view.integer("dim_head")
    mixer = Attention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        states=(
            State(fixed=view.integer("prompt_length", minimum=0) * 2 * heads * d, key_value=True),
        ),
    )
    return equal_layers(mixer, layer_count(view))


def _local_or_hashed(view: ConfigView, kind: str, *, keeps: bool) -> Attention:
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    d = view.integer("attention_head_size")
    kept = [State(per_token=hidden)]
    if kind == "lsh":
        chunk = view.integer("lsh_attn_chunk_length")
        hashes = heads * view.integer("num_hashes")
        kept.append(State(per_token=hashes, bits=64, since=chunk + 1))
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        has_key=kind == "local",
        cached=False,
        states=tuple(kept) if keeps else (),
    )


def reformer_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Reformer (arXiv 2001.04451): hidden states are kept, and in LSH layers, whose queries are
    their keys, int64 buckets once the prompt is longer than a chunk."""
    given = view.strings("attn_layers")
    if given is None or not set(given) <= {"local", "lsh"}:
        raise InvalidConfigError(f"{view.where}: attn_layers must be a list of local and lsh")
    if len(given) > limits.LAYERS.most:
        raise InvalidConfigError(f"{view.where}: attn_layers has {len(given)} entries")
    keeps = view.flag("is_decoder")
    local, lsh = (_local_or_hashed(view, kind, keeps=keeps) for kind in ("local", "lsh"))
    return tuple(
        Layer(index=i, mixers=(local if kind == "local" else lsh,)) for i, kind in enumerate(given)
    )


def xlnet_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """XLNet (arXiv 1906.08237): a fifth matrix for relative positions, three biases and two segment
    vectors per head. It keeps hidden states, of the last `mem_len` tokens, not keys and values."""
    mixer = attention(shape, view)
    width = mixer.num_attention_heads * mixer.head_dim
    keeps = State(per_token=mixer.hidden_size, limit=view.optional("mem_len", minimum=0) or None)
    other = width * (mixer.hidden_size + 5)
    mixer = replace(mixer, cached=False, other_parameters=other, states=(keeps,))
    return equal_layers(mixer, layer_count(view))


CPMANT_NAMES = TensorNames(
    modules=under(
        "self_att.self_attention", q="project_q", k="project_k", v="project_v", o="attention_out"
    )
)
REFORMER_NAMES = TensorNames(
    modules=under("attention.self_attention", q="query", k="key", v="value")
    | {"attention.self_attention.query_key": "q", "attention.output.dense": "o"}
)
XLNET_NAMES = TensorNames(
    modules=under("rel_attn", q="q", k="k", v="v", o="o") | {"rel_attn.layer_norm": ""},
    rest="other",
)

ARCHITECTURES = (
    Architecture(
        types=("xlnet",),
        attention=replace(MHA, build=xlnet_layers, caches="hidden states"),
        body=Body(
            norm=WEIGHT_AND_BIAS,
            final_norms=0,
            mlp=Mlp(width="d_inner", gated=False, bias=True),
            more=xlnet_mask,
            head_bias=True,
        ),
        tensors=XLNET_NAMES,
    ),
    Architecture(
        types=("reformer",),
        config=ConfigKeys(tied=never),
        attention=AttentionShape(build=reformer_layers),
        tensors=REFORMER_NAMES,
    ),
    Architecture(
        types=("cpmant",),
        config=ConfigKeys(tied=never),
        attention=AttentionShape(build=cpmant_layers, kv_heads_from="query heads"),
        body=Body(mlp=Mlp(width="dim_ff"), more=cpmant_embeddings),
        tensors=CPMANT_NAMES,
        rotary="none",
        conversion=Conversion(numbers_heads=True),
    ),
)
