"""Recurrent state as llama.cpp keeps it: two float32 rows per layer and sequence.

`r` holds the last inputs of a convolution or of a token shift, `s` the state itself: n_embd_r and
n_embd_s of src/llama-hparams.cpp; float32 by create_memory of src/llama-model.cpp. (transformers
keeps one input of the convolution more, and keeps them in the model's dtype.)
"""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Recurrent, State

from .form import Gguf, Recurrence
from .keys import Keys

# The form that keeps a matrix of keys times values for each head.
LIGHTNING = "lightning attention"


def recurrent_mixers(form: Gguf, keys: Keys, kv_heads: list[int | None]) -> list[Recurrent | None]:
    """The recurrent mixer of each layer, None where it has none."""
    recurrence, count = form.recurrence, len(kv_heads)
    flags = [] if recurrence is None else recurrent_layers(recurrence, keys, kv_heads)
    if recurrence is None or not any(flags):
        return [None] * count
    mixer, more = _mixer(recurrence, keys), _embedded_state(keys)
    longer = replace(mixer, states=(*mixer.states, State(fixed=more, bits=32)))
    embedded = keys.get("ple.layers") if more else ()
    listed = set(embedded) if isinstance(embedded, tuple) else set()
    return [(longer if i in listed else mixer) if flag else None for i, flag in enumerate(flags)]


def recurrent_layers(recurrence: Recurrence, keys: Keys, kv_heads: list[int | None]) -> list[bool]:
    """Whether each layer keeps a recurrent state."""
    count = len(kv_heads)
    if recurrence.layers == "all":
        return [True] * count
    if recurrence.layers == "interval":
        return _by_interval(recurrence, keys, count)
    widths: list[int | None] = [None] * count
    if recurrence.layers == "without heads or MLP":  # its MLPs are layers of their own
        widths = keys.per_layer("feed_forward_length", count, 0)
    return [heads == 0 and not width for heads, width in zip(kv_heads, widths, strict=True)]


def _by_interval(recurrence: Recurrence, keys: Keys, count: int) -> list[bool]:
    listed = keys.flags("attention.recurrent_layers", count)
    interval = keys.integer("full_attention_interval", recurrence.period)
    if not interval:
        raise InvalidConfigError(f"{keys.where}: {keys.architecture}.full_attention_interval is 0")
    return listed or [(i + 1) % interval != 0 for i in range(count)]


def _mixer(recurrence: Recurrence, keys: Keys) -> Recurrent:
    shift, state = _sizes(recurrence, keys)
    if not shift and not state:
        raise InvalidConfigError(
            f"{keys.where}: no key tells the size of {keys.architecture}'s recurrent state, such as"
            f" {keys.architecture}.ssm.state_size"
        )
    return Recurrent(
        form=recurrence.form,
        hidden_size=keys.need("embedding_length"),
        weights=0,
        states=(State(fixed=shift, bits=32), State(fixed=state, bits=32)),
    )


def _sizes(recurrence: Recurrence, keys: Keys) -> tuple[int, int]:
    """Elements of `r` and `s`."""
    hidden = keys.need("embedding_length")
    head_size = keys.number("wkv.head_size")
    if head_size:  # RWKV
        return (keys.integer("token_shift_count", 2) or 0) * hidden, hidden * head_size
    columns = keys.number("shortconv.l_cache")
    if columns:
        return hidden * (columns - 1), 0
    kernel, delta = keys.number("ssm.conv_kernel"), keys.number("kda.head_dim")
    if delta:
        heads = _heads(keys)
        return 3 * (kernel - 1 if kernel else 3) * heads * delta, heads * delta**2
    if recurrence.form == LIGHTNING:
        heads = _heads(keys)
        return 0, heads * (keys.integer("attention.key_length") or hidden // heads) ** 2
    inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    channels = inner + 2 * keys.number("ssm.group_count") * state
    return max(0, kernel - 1) * channels, state * inner


def _embedded_state(keys: Keys) -> int:
    """Elements of the convolution over n-grams of a layer in `ple.layers` (`ple_conv_state`)."""
    columns = max(0, keys.number("ple.conv_kernel") - 1) * keys.number("ple.ngram_size")
    return columns * keys.number("hyper_connection.count") * keys.need("embedding_length")


def _heads(keys: Keys) -> int:
    """The attention heads of the first layer, as `n_head()` has them."""
    (first,) = keys.per_layer("attention.head_count", 1, None)
    if not first:
        raise InvalidConfigError(f"{keys.where}: no {keys.architecture}.attention.head_count")
    return first
