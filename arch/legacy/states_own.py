"""Families whose state has a format of its own: RWKV, xLSTM, XLNet, Reformer, CPM-Ant, and models
that run the same layers several times."""

from dataclasses import replace
from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, Recurrent, State
from headcount.model.spec import Layer

from ..attention.layers import attention, decoder, layer_count
from ..attention.shape import AttentionShape
from ..config_view import MAX_LAYERS, ConfigView
from ..states.mamba import FLOAT32
from .states_unusual import repeat


def _alike(mixer: Any, count: int) -> tuple[Layer, ...]:
    return tuple(Layer(index=i, mixers=(mixer,)) for i in range(count))


def rwkv(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """RWKV-4 (arXiv 2305.13048): key, value, receptance and output, a decay and a bonus per channel
    and three mixing vectors. It keeps the last input of both halves of the block, and three float32
    vectors: numerator, denominator and maximum of its softmax."""
    hidden = view.integer("hidden_size")
    width = view.optional("attention_hidden_size") or hidden
    mixer = Recurrent(
        form="RWKV",
        hidden_size=hidden,
        weights=4 * hidden * width + 2 * width + 3 * hidden,
        states=(State(fixed=2 * hidden), State(fixed=3 * hidden, bits=FLOAT32)),
    )
    return _alike(mixer, layer_count(view))


def xlstm(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """mLSTM layers (arXiv 2405.04517): q, k, v, an output gate, two gates per head with biases, and
    a normaliser. The state of a head is [qk, v] and [qk] and a number; its widths are rounded up to
    64 where the state is allocated."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_heads")
    qk, v = (int(hidden * _factor(view, name)) for name in ("qk_dim_factor", "v_dim_factor"))
    state_qk, state_v = (-(-width // 64) * 64 // heads for width in (qk, v))
    biases = 2 * heads + (2 * qk + 2 * v + hidden) * view.flag("use_bias")
    mixer = Recurrent(
        form="mLSTM",
        hidden_size=hidden,
        num_attention_heads=heads,
        head_dim=qk // heads,
        v_head_dim=v // heads,
        weights=hidden * (2 * qk + 3 * v + 2 * heads) + biases,
        norms=v * (1 + view.flag("use_bias")),
        biases=biases,
        states=(State(fixed=heads * (state_qk * state_v + state_qk + 1)),),
    )
    return _alike(mixer, layer_count(view))


def _factor(view: ConfigView, name: str) -> float:
    value: Any = view.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise InvalidConfigError(f"{view.where}: {name} is {value!r}; a number is expected")
    return float(value)


def xlnet(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """XLNet (arXiv 1906.08237): a fifth matrix for relative positions, three biases and two segment
    vectors per head. It keeps hidden states, of the last `mem_len` tokens, not keys and values."""
    mixer = attention(shape, view)
    width = mixer.num_attention_heads * mixer.head_dim
    keeps = State(per_token=mixer.hidden_size, limit=view.optional("mem_len", minimum=0) or None)
    other = width * (mixer.hidden_size + 5)
    mixer = replace(mixer, cached=False, other_parameters=other, states=(keeps,))
    return _alike(mixer, layer_count(view))


def reformer(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Reformer (arXiv 2001.04451): hidden states are kept, and in LSH layers, whose queries are
    their keys, int64 buckets once the prompt is longer than a chunk."""
    given: Any = view.get("attn_layers")
    if not isinstance(given, (list, tuple)) or not set(given) <= {"local", "lsh"}:
        raise InvalidConfigError(f"{view.where}: attn_layers must be a list of local and lsh")
    if len(given) > MAX_LAYERS:
        raise InvalidConfigError(f"{view.where}: attn_layers has {len(given)} entries")
    keeps = view.flag("is_decoder")
    local, lsh = (_reformer_attention(view, kind, keeps=keeps) for kind in ("local", "lsh"))
    return tuple(
        Layer(index=i, mixers=(local if kind == "local" else lsh,)) for i, kind in enumerate(given)
    )


def _reformer_attention(view: ConfigView, kind: str, *, keeps: bool) -> Attention:
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


def cpmant(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
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
    return _alike(mixer, layer_count(view))


def hrm_text(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """HRM-Text: a low and a high stack. The low one runs `L_cycles` times, then the high one once,
    and that `H_cycles` times; every run has a cache of its own. Files that transformers saves count
    those runs in num_hidden_layers, and name the layers of one stack."""
    depth = view.optional("num_layers_per_stack", maximum=MAX_LAYERS) or layer_count(view)
    high, low = view.integer("H_cycles"), view.integer("L_cycles")
    if depth * high * (low + 1) > MAX_LAYERS:
        raise InvalidConfigError(f"{view.where}: more than {MAX_LAYERS:,} runs of layers")
    mixer = attention(shape, view)
    gate = mixer.num_attention_heads * mixer.head_dim
    mixer = replace(mixer, other_parameters=gate * (mixer.hidden_size + mixer.q_bias))
    again = replace(mixer, owns_parameters=False)
    first = {0: "L_module", low: "H_module"}  # the runs that use a stack for the first time
    return tuple(
        Layer(
            index=run * depth + i,
            mixers=(mixer if run in first else again,),
            home=first.get(run),
            number=i,
        )
        for run in range(high * (low + 1))
        for i in range(depth)
    )


def dory(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Dory: the layers between input and output section run `n_recurrent_loops` times; copies of
    their caches are appended. Files that transformers saves hold twice the counts, with an `mlp`
    after each kind of layer."""
    given = view.strings("layer_types")
    double = 2 if given is not None and "mlp" in given else 1
    if given is not None and double == 2:
        halved = {"num_hidden_layers": layer_count(view) // 2, "layer_types": list(given[::2])}
        view = view.overridden(halved)
    layers = decoder(shape, view)
    layers = tuple(replace(la, mixers=tuple(_dory_mixer(m) for m in la.mixers)) for la in layers)
    first = view.integer("n_input_layers", minimum=0) // double
    inner = view.optional("n_recurrent_layers", minimum=0)
    last = view.integer("n_output_layers", minimum=0) // double
    count = len(layers) - first - last if inner is None else inner // double
    if view.get("recurrent_kv_cache_mode") == "last_loop" or count < 1:
        return layers
    return repeat(layers, first, first + count, view.integer("n_recurrent_loops"))


def _dory_mixer(mixer: Any) -> Any:
    """A gate for every element of the output, and two scales of the same width."""
    width = mixer.num_attention_heads * mixer.head_dim
    return replace(mixer, other_parameters=width * (mixer.hidden_size + 2))
