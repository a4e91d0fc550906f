"""Keys of a stranger's config that change what is cached, and that no common name explains."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from headcount.model.errors import short
from headcount.model.numbers import whole

from ..attention.layer_kinds import CHUNKED, SPELLINGS
from ..size_names import NAMES, ONE_KEY_VALUE_HEAD, READ_FLAGS, names_of

# Words of a key: a layer that keeps a state, or a cache that is sparse, compressed or shared.
_STATE = re.compile(
    r"(^|_)(mamba\d?|d?_?ssm|rwkv\d?|conv(1d|olution)?|shortconv|lightning|hybrid|recurrent"
    r"|recurrence|state|rnn|lstm|gru|[ms]lstm|xlstm|delta(net)?|gdn|gla|kda|lru|rglru|retention"
    r"|retnet|hyena|ttt|titans?|memory|mem|compress(ed|ion|or|ors)?|indexer|nsa|dsa|csa|hca|moba"
    r"|infllm|swa|yoco|cla|blocksparse|sparsity|loop(s|ed)?|ut|time_mix|timemix|d_inner|expand|cca"
    r"|cycles|ssd|dt_rank|time_step|linear_layers?|recurs(ions?|ive)|iterations?|passes|unroll(ed)?"
    r"|[tw]kv|lsh|hash(es)?|performer|fnet|fft|beacons?|landmarks?|evict(ion)?|h2o|snapkv|tpa|decay"
    r"|latents?|pool(ing|ed)?_(factor|ratio|stride|size|kernel)"
    r"|(top_?k|select(ed)?)_(blocks?|keys?|pages?)|(block|key|page|kv)_top_?k)(_|$)"
    r"|^(use_)?linear$"
)
_OTHER_STATE = re.compile(r"(mamba|ssm|rwkv|linear_att|linear_(key|num|value|head|conv))")
_INDEX = re.compile(r"^index_")
_SPARSE = re.compile(r"(^|_)sparse(_|$)")
_SHARED = re.compile(
    r"(shar(e[sd]?|ing)_.*(kv|attn|attention|cache|layers?)|(kv|cache|attn|layer)_shar(ed?|ing)(_|$))"
)
_PATTERN = re.compile(
    r"(^|_)(pattern|period|interval|every|freq|stride|attn_mod|dilat(ion|ed))(_|$)"
)
_KINDS = re.compile(
    r"(block_?types?|layers?_block|block_configs|layer_?(kinds?|pattern)|attn_types?|attention_types?"
    r"|attention_layers|attn_layer|mixer|window|chunk|per_layer_config|local_att"
    r"|global_(head|attn|num)|num_global|(attn|attention)_span)"
)
# Layers that are run again, stand for others, are left out or are told apart by what they see.
_SOME_LAYERS = re.compile(
    r"(^|_)((tied?|tying|reus(e[sd]?|ing)|repeat(s|ed)?|unique|skip(ped|s)?|exit|global|local|full"
    r"|sliding|windowed|attn|attention|linear|sparse|self_decoder|cross_decoder|kv)_(\w+_)?"
    r"(layers?|blocks?)|(layers?|blocks?)_(\w+_)?(tied?|tying|reus(e[sd]?|ing)|repeat(s|ed)?"
    r"|copies|skips?)|repeats?|reuse_\w+|\w+_reuse)(?!_(norm|scale|drop|eps))(_|$)"
)
# Matrices of a low rank in place of projections, and widths that may be a head's or all heads'.
_WIDTHS = re.compile(
    r"(^|_)((q|k|v|o|kv|qk|qkv|key|value|query|latent|attn|attention|low)_rank|rank_(q|k|v|kv)"
    r"|latent_(dim|size))(_|$)|^rank$"
    r"|^(d_[kv]|(q|k|v|o|kv|qk|qkv|keys?|values?|query)_(\w+_)?(dim|size|channels|width))$"
)
# A cache of other numbers than those of the model's dtype.
_BITS = re.compile(r"(^|_)(kv|cache|keys?|values?)_(\w+_)?(n?bits?|dtype|quant\w*|precision)$")
# An encoder beside the decoder, and layers that attend to it.
_CROSSING = re.compile(
    r"(^cross_|(^|_)cross_att|^(num|n)_encoder_|^(en|de)coder_(layers|attention_heads|ffn_dim|hidden_size|width)$)"
)
# Heads that some layers have to themselves.
_HEADS_OF_SOME = re.compile(r"(_(attention|key_value|kv)_heads|heads_per_layer|per_layer_heads)$")
# How many query heads share a K/V head, or how many K/V heads there are: the word is used for both.
_SHARING_OF_HEADS = re.compile(
    r"(^|_)(gqa|kv|key_value|quer(y|ies))_(\w+_)?(groups?|factor|ratio|rep(eats?)?|per_kv)(_|$)"
)
# Tokens in front of the text that are cached with it, and weights that several layers share.
_MORE_OF_THEM = re.compile(
    r"^(prompt_length|pre_seq_len|num_virtual_tokens|inner_group_num|num_hidden_groups)$"
    r"|(^|_)(meta|prefix|prompt|memory|soft|sink|latent)_tokens$"
)
# The same words in keys that change nothing of the cache.
_HARMLESS = re.compile(
    r"(moe|expert|rope|rotary|router|mlp|ffn|token|vision|visual|image|audio|video|mm_|speech"
    r"|initial|dropout|loss|decoder_sparse_step|feed_forward|hidden_states|context_window|bias"
    r"|mtp|nextn|nope|multiplier|sparse_pred|llm_compressor|seconds)"
)
_NO_ROPE = re.compile(r"(^|_)(no_rope|nope)_layer")
_UNDERSTOOD = frozenset(
    {
        *("sliding_window", "use_sliding_window", "max_window_layers", "attention_chunk_size"),
        *("use_sliding_window_attention", "use_swa", "sliding_window_pattern", "layer_types"),
        *("_sliding_window_pattern", "expand_ratio", "is_encoder_decoder"),
    }
)
# Words of a key that speaks of attention, and of one that changes neither heads nor what is kept.
_ATTENTION = re.compile(
    r"((^|_)(attn|attention|heads?|kv|qkv|keys?|values?|query|queries|sinks?|causal|bidirectional)(_|$)"
    r"|^(d_[qkv]|[qkv]_dim|qk_dim|[qkv]_groups|new_decoder_architecture)$)"
)
_BESIDE = re.compile(
    r"(drop|softmax|softcap|scal(e|ing|ar)|multiplier|temperature|temp_|impl|flash|logn|norm|eps$"
    r"|lm_head|upcast|mask|fp32|dtype|pad_|label|predict|parallel_attn|clip|eager|sdpa|logit|init"
    r"|backend|cache|kernel|quant|lora|head_bias|entity|max_distance|num_buckets|aux|fused?|id$|ids$)"
)
# Experts of the attention, not of the feed-forward.
_EXPERTS = re.compile(
    r"(attn|attention)_(\w+_)?experts?(_|$)|(^|_)experts?_(\w+_)?(attn|attention)"
)
# Flags and numbers that say so much of the attention that the rest cannot be read alone.
_TELLING = {
    "is_encoder_decoder": "says that it attends to an encoder",
    "add_cross_attention": "says that it attends to an encoder",
    "attention_k_eq_v": "says that keys are values",
    "logit_scale_init_value": "belongs to encoders that are compared",
}
_OF_WRAPPERS = ("is_encoder_decoder", "add_cross_attention")
# What a class's name, or a word that stands for a kind of attention, says of state.
_STATEFUL = re.compile(
    r"mamba|rwkv|retnet|retention|hyena|lstm|griffin|hybrid|linear_?att|delta_?net|gated_?delta"
    r"|recurrent|moba|yoco|lightning|reformer|performer"
    r"|(^|[^a-z])(ssm|gla|kda|gdn|linear|sparse)($|[^a-z])"
)
_NAMING = ("model_type", "architecture", "arch", "backbone", "block")
_OF_ALL_LAYERS = ("attn_config", "attention_config")  # objects that speak of every layer
_LATENT = ("qk_nope_head_dim", "qk_rope_head_dim", "q_lora_rank")
_LATENT_WORDS = ("use_mla", "mla")
_SHIFT = re.compile(r"^(use_)?(token|time)_shift")
_BOTH_SIDES = ("use_bidirectional_attention", "bidirectional", "is_bidirectional")


def of_wrappers(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same for a config around that of the language model."""
    yield from ((key, _TELLING[key]) for key in _OF_WRAPPERS if config.get(key))


def sounding_of_attention(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, why it is doubtful) for each key that speaks of attention, and that nothing here reads:
    it may change heads, widths or what is kept."""
    read = _read_keys()
    for key, value in config.items():
        if key in read or key in _UNDERSTOOD or says_nothing(key, value, config):
            continue
        beside = _BESIDE.search(key) or (_HARMLESS.search(key) and not _EXPERTS.search(key))
        if _ATTENTION.search(key) and not beside:
            yield key, "it speaks of attention, and is not read"


def contradiction(config: Mapping[str, Any]) -> str | None:
    """What a flag of one K/V head says against their number. ChatGLM's `multi_query_group_num` is
    the number that its flag switches on."""
    names = names_of("num_key_value_heads")
    number = next((name for name in names if config.get(name) is not None), None)
    if number is None or number.startswith("multi_query"):
        return None
    for key in ONE_KEY_VALUE_HEAD:
        if isinstance(config.get(key), bool) and config[key] is not (config[number] == 1):
            return f"{key} is {str(config[key]).lower()} beside {number}, which is taken"
    return None


def is_read(key: str) -> bool:
    """Whether the assumed reading takes or understands `key`."""
    return key in _read_keys() or key in _UNDERSTOOD or key in _TELLING


@lru_cache
def _read_keys() -> frozenset[str]:
    names = (name for key in NAMES for name in names_of(key))
    return frozenset({*names, *READ_FLAGS, *_LATENT, "v_head_dim", "kv_lora_rank", "q_lora_rank"})


def not_understood(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, what it does) for each key that forbids to read `config` by the standard names."""
    count = _layer_count(config)
    for key, value in config.items():
        if _NO_ROPE.search(key) and _has_windows(config):  # an empty list leaves it to the class
            yield key, "may tell which layers have a window"
        if key in _TELLING and value not in (None, False):
            yield key, _TELLING[key]
        if key in _UNDERSTOOD or says_nothing(key, value, config):
            continue
        why = _why_not(key, value, count)
        if why is not None:
            yield key, why
    yield from _of_layer_types(config)
    yield from _of_other_shapes(config)
    yield from _of_two_numbers(config)


def _why_not(key: str, value: Any, count: int | None) -> str | None:
    """What a key says alone that is not understood; None where it says nothing of the kind."""
    if _CROSSING.search(key) and not _SHARED.search(key) and not _HARMLESS.search(key):
        return _TELLING["is_encoder_decoder"]
    if _MORE_OF_THEM.search(key) and value != 1:
        return "adds tokens to the cache, or shares weights over layers"
    if _is_list_of_layers(key, value, count) or _is_no_number(key, value):
        return "makes layers of several kinds"
    if _gives_some_heads(key):
        return "gives some layers heads of their own"
    if _names_state(key) or _is_word_of_state(key, value):
        return "speaks of state, or of a cache that is sparse, compressed or shared"
    if _names_kinds(key, value):
        return "makes layers of several kinds"
    if key in _read_keys() or _HARMLESS.search(key):
        return None
    if _SOME_LAYERS.search(key) and value != count:
        return "may let some layers see, share or do what others do not"
    if _BITS.search(key):
        return "says how wide the numbers of the cache are: leave it out, and give --kv-dtype"
    return "may change how wide keys and values are" if _WIDTHS.search(key) else None


def _is_no_number(key: str, value: Any) -> bool:
    """A list of layers or an object under the name of their number."""
    return key in names_of("num_hidden_layers") and whole(value) is None


def _is_word_of_state(key: str, value: Any) -> bool:
    """A word in the place of a kind of attention, or the name of a class."""
    if key == "architectures" and isinstance(value, list) and value:
        value = value[0]
    elif not _ATTENTION.search(key) and key not in _NAMING:
        return False
    return isinstance(value, str) and bool(_STATEFUL.search(value.lower()))


def _of_layer_types(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    given = config.get("layer_types")
    kinds = sorted({str(kind) for kind in given}) if isinstance(given, list) else []
    unknown = [kind for kind in kinds if kind not in SPELLINGS]
    if unknown:
        yield "layer_types", f"holds {unknown[0]!r}"
    if CHUNKED in kinds and whole(config.get("attention_chunk_size")) is None:
        yield "layer_types", f"holds {CHUNKED!r}, whose attention_chunk_size is not given"


def _of_other_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys that say nothing alone, and much beside others."""
    layers = [name for name in names_of("num_hidden_layers") if name in config]
    if "num_decoder_layers" in layers and len(layers) > 1:
        yield "num_decoder_layers", _TELLING["is_encoder_decoder"]
    latent = config.get("kv_lora_rank") is not None and config.get("use_mla") is not False
    for key in _LATENT if not latent else ():
        if config.get(key):
            yield key, "is a part of latent attention, whose rank is not given"
    for key in _LATENT_WORDS if not latent else ():
        if not _is_neutral(config.get(key)):
            yield key, "says that attention is latent, whose rank (kv_lora_rank) is not given"
    for key in ONE_KEY_VALUE_HEAD:
        if not isinstance(config.get(key), bool) and config.get(key) is not None:
            yield key, f"is {short(config[key])}, where true or false is expected"
    for key in _BOTH_SIDES:
        if not _is_neutral(config.get(key)) and config[key] != "vision":
            yield key, "says that both sides are seen"
    yield from _of_shared_heads(config)
    for key, inner in config.items():
        if not isinstance(inner, Mapping) or not _ATTENTION.search(key):
            continue
        if key not in _OF_ALL_LAYERS and _names_heads(inner):
            yield key, "gives some layers heads of their own"
        rest = {name: value for name, value in inner.items() if name != "attn_type"}
        yield from ((f"{key}: {name}", why) for name, why in not_understood(rest))


def _of_shared_heads(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Words for the number of K/V heads and for the query heads that share one: beside either
    number they say the other."""
    heads, kv = (_number(config, size) for size in ("num_attention_heads", "num_key_value_heads"))
    both = {kv, heads // kv} if heads and kv else {kv}
    for key, value in config.items():
        known = key in names_of("num_key_value_heads")
        if known or not _SHARING_OF_HEADS.search(key) or _is_neutral(value):
            continue
        if kv is None:
            yield key, "may count K/V heads, or the query heads that share one"
        elif whole(value) is not None and whole(value) not in both:
            yield key, f"is {value}, which {kv} K/V heads contradict"


def _number(config: Mapping[str, Any], size: str) -> int | None:
    """The first number that the file gives for `size`."""
    found = (whole(config.get(name)) for name in names_of(size))
    return next((number for number in found if number is not None), None)


# Sizes of which no file can have two.
_ONCE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def _of_two_numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Two numbers for one size, by two of its names: either may be the one that is built."""
    latent = config.get("kv_lora_rank") is not None
    for size in _ONCE if latent else (*_ONCE, "head_dim"):
        found = {name: whole(config.get(name)) for name in names_of(size)}
        if size == "num_key_value_heads":
            found |= _beside_a_flag(config, found)
        given = {name: number for name, number in found.items() if number is not None}
        first = next(iter(given), None)
        for name, number in given.items():
            if first is not None and number != given[first]:
                yield name, f"says {number} where {first} says {given[first]}: leave one of them"


def _beside_a_flag(
    config: Mapping[str, Any], found: Mapping[str, int | None]
) -> dict[str, int | None]:
    """K/V heads that a flag may switch off (ChatGLM), and those of a nested object (MPT)."""
    inner = config.get("attn_config")
    nested = whole(inner.get("kv_n_heads")) if isinstance(inner, Mapping) else None
    off = any(config.get(flag) is False for flag in ONE_KEY_VALUE_HEAD)
    switched = {"multi_query_group_num": None} if off else {}
    return {**switched, "attn_config: kv_n_heads": nested}


def _names_heads(inner: Mapping[str, Any]) -> bool:
    """Whether a nested object says again what the top says of every layer."""
    sizes = ("num_attention_heads", "num_key_value_heads", "head_dim")
    return any(name in inner for size in sizes for name in names_of(size))


def _gives_some_heads(key: str) -> bool:
    if not _HEADS_OF_SOME.search(key) or _HARMLESS.search(key):
        return False
    return not any(key in names_of(size) for size in NAMES)


def _has_windows(config: Mapping[str, Any]) -> bool:
    """Windows, or chunks, of which no list says what layers have them (Llama 4, SmolLM3)."""
    if isinstance(config.get("layer_types"), list) or config.get("use_sliding_window") is False:
        return False
    return any(config.get(key) for key in ("sliding_window", "attention_chunk_size"))


def says_nothing(key: str, value: Any, config: Mapping[str, Any]) -> bool:
    """Nothing, what is switched off, and what another key or every other config says, too."""
    if key == "attn_type_list" and isinstance(value, list) and set(map(str, value)) == {"1"}:
        return True  # MiniMax: 1 is attention
    again = key == "sliding_window_size" and value == config.get("sliding_window")
    return again or _is_neutral(value) or _is_switched_off(key, config)


def _names_state(key: str) -> bool:
    if _OTHER_STATE.search(key) or _INDEX.search(key) or _SHIFT.search(key):
        return True
    found = _STATE.search(key) or _SPARSE.search(key) or _SHARED.search(key)
    return bool(found) and not _HARMLESS.search(key)


def _names_kinds(key: str, value: Any) -> bool:
    found = _KINDS.search(key) or (_PATTERN.search(key) and value != 1)
    return bool(found) and not isinstance(value, bool) and not _HARMLESS.search(key)


def _is_list_of_layers(key: str, value: Any, count: int | None) -> bool:
    """One entry for each layer, not all alike: of something that is not the feed-forward half."""
    if not isinstance(value, list) or len(value) != count or _HARMLESS.search(key):
        return False
    is_read = key.endswith("_heads") or key in names_of("num_key_value_heads")
    return any(entry != value[0] for entry in value) and not is_read


def _layer_count(config: Mapping[str, Any]) -> int | None:
    names = names_of("num_hidden_layers")
    return next((config[n] for n in names if isinstance(config.get(n), int)), None)


def _is_neutral(value: Any) -> bool:
    """Nothing, none or off."""
    if isinstance(value, list):
        return all(entry is None or entry is False for entry in value)
    return value is None or value is False or value in (0, -1, "", "none", {})


def _is_switched_off(key: str, config: Mapping[str, Any]) -> bool:
    """`use_cla: false` beside cla_share_factor, `use_mamba: false` beside mamba_d_state."""
    words = key.split("_")
    heads = ("_".join(words[:n]) for n in range(1, len(words) + 1))
    return any(config.get(f"use_{head}") is False for head in heads)
