"""Models of ten architectures with a previous-token head and an induction head put in by hand.

Weights are written where transformers' own modules have them. Every token has a code of its own,
all at right angles; the previous-token head writes the code of the token before into dims of its
own, where the keys of the induction head read it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

CODES = 32  # tokens, each with a code of as many dims
POSITIONS = 72
_TOKEN, _BEFORE = slice(0, CODES), slice(CODES, 2 * CODES)
_ONE = 2 * CODES  # a dim that is the same for all tokens
_PLACES = slice(_ONE + 1, _ONE + 1 + 32)  # where learned positions are written
_STEEP = 1.6  # of queries and keys: scores of some thirty


class Planted(NamedTuple):
    """A model, its [layer, head] by role, and what its config is called."""

    model: Any
    roles: dict[str, list[list[int]]]


class Family(NamedTuple):
    """How a class is built and written: `attention` finds the module of a layer, `layout` says how
    its projections lie, `look_back` makes queries and keys for the token before."""

    config: str
    model: str
    values: dict[str, Any]
    attention: Callable[[Any, int], Any]
    layout: str
    look_back: Callable[[Any, Any], tuple[Tensor, Tensor]]
    head_dim: int = 64
    width: int = 256
    content: tuple[int, ...] = tuple(range(32, 64))  # dims of a head that positions hardly turn
    loud: float = 0.1  # of what the heads write
    everywhere: bool = False  # the bias that looks back is the same in all layers
    rotated: int = 64  # dims of a head that rotary embedding turns
    pairs: int = 32  # of them, how many are used
    neighbours: bool = False  # it turns neighbouring dims together, not halves
    base: float = 1e6
    norms: float | None = None  # gain of the norm on queries


def plant(name: str, *, seed: int = 0, alone: bool = False) -> Planted:
    """The random model of the family `name` with a previous-token head (0) in layer 0 and an
    induction head (the last) in layer 1, and no other. `alone`: all else in its layers is zero, so
    that it is a model of attention only."""
    import transformers

    family = FAMILIES[name]
    torch.manual_seed(seed)
    config = getattr(transformers, family.config)(**family.values)
    model = getattr(transformers, family.model)(config).eval()
    last = _heads(config) - 1
    with torch.no_grad():
        if alone:
            _silence(model)
        _write_codes(model)
        if family.norms:
            for layer in (0, 1):
                family.attention(model, layer).q_norm.weight.fill_(family.norms)
        look_back = family.look_back(model, family)
        token, before = _rows(family, _TOKEN), _rows(family, _BEFORE)
        _write_head(family, model, 0, 0, *look_back, _rows(family, _TOKEN, 1.0), _BEFORE)
        _write_head(family, model, 1, last, token, before, _rows(family, _TOKEN, 1.0), _TOKEN)
    layers = (0, 1) if family.everywhere else (0,)
    roles = {"previous_token": [[layer, 0] for layer in layers], "induction": [[1, last]]}
    return Planted(model, roles)


def plant_aligned() -> Planted:
    """T5 with a head, too, whose cross-attention looks at the same token in the encoding."""
    family = FAMILIES["t5"]._replace(attention=_in("decoder.block.{}.layer.1.EncDecAttention"))
    planted = plant("t5")
    token = _rows(family, _TOKEN)
    with torch.no_grad():
        into = _BEFORE  # of layer 1, where nothing reads it any more
        _write_head(family, planted.model, 1, 2, token, token, _rows(family, _TOKEN, 1.0), into)
    return Planted(planted.model, {**planted.roles, "alignment": [[1, 2]]})


def _silence(model: Any) -> None:
    """Zeros all but embeddings and norms."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and parameter.shape[0] != CODES and "wpe" not in name:
            parameter.zero_()


def _heads(config: Any) -> int:
    return int(getattr(config, "num_attention_heads", None) or config.n_heads)


def _write_codes(model: Any) -> None:
    embedding = model.get_input_embeddings().weight
    embedding.mul_(0.02 / embedding.std())
    embedding[:, _TOKEN] = torch.eye(CODES)
    embedding[:, _ONE] = 1.0
    model.get_output_embeddings().weight[:, _TOKEN] = torch.eye(CODES)


def _rows(family: Family, dims: slice, steep: float | None = None) -> Tensor:
    """[d, D]: a head that reads `dims` of the stream into its content."""
    rows = torch.zeros(family.head_dim, family.width)
    rows[list(family.content), dims] = torch.eye(CODES) * (steep or _STEEP)
    return rows


def _write_head(
    family: Family,
    model: Any,
    layer: int,
    head: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    into: slice,
) -> None:
    """Writes [d, D] each, and an output that puts what was read into the dims `into`."""
    attention = family.attention(model, layer)
    output = torch.zeros(family.width, family.head_dim)
    output[into, list(family.content)] = torch.eye(CODES) * family.loud
    _LAYOUTS[family.layout](attention, head, {"q": query, "k": key, "v": value}, output)


def _separate(attention: Any, head: int, rows: dict[str, Tensor], output: Tensor) -> None:
    """A linear layer each; K/V heads may be fewer."""
    size = len(output[0])
    for part, own in rows.items():
        name = f"{part}_proj" if hasattr(attention, f"{part}_proj") else part
        weight = getattr(attention, name).weight
        group = (attention.q_proj.weight if name != part else weight).shape[0] // weight.shape[0]
        at = head // group * size
        weight[at : at + size] = own
    name = next(n for n in ("o_proj", "out_proj", "o") if hasattr(attention, n))
    getattr(attention, name).weight[:, head * size : (head + 1) * size] = output


def _thirds(attention: Any, head: int, rows: dict[str, Tensor], output: Tensor) -> None:
    """All q, all k, all v in one; of GPT-2 with inputs first."""
    fused, out, turned = (
        (attention.c_attn.weight, attention.c_proj.weight, True)
        if hasattr(attention, "c_attn")
        else (attention.Wqkv.weight, attention.out_proj.weight, False)
    )
    size, whole = len(output[0]), (fused.T if turned else fused)
    for third, own in zip(whole.chunk(3), rows.values(), strict=True):
        third[head * size : (head + 1) * size] = own
    (out.T if turned else out)[:, head * size : (head + 1) * size] = output


def _by_head(attention: Any, head: int, rows: dict[str, Tensor], output: Tensor) -> None:
    """q, k, v of head 0, then of head 1…"""
    size = len(output[0])
    by_head = attention.query_key_value.weight.view(-1, 3, size, len(output))
    for at, own in enumerate(rows.values()):
        by_head[head, at] = own
    attention.dense.weight[:, head * size : (head + 1) * size] = output


_LAYOUTS = {"separate": _separate, "thirds": _thirds, "by head": _by_head}


def _by_rotation(model: Any, family: Family) -> tuple[Tensor, Tensor]:
    """With rotary embedding: queries and keys of the constant dim, which lie as the rotation turns
    the token before: their product is the sum of cos(frequency * (distance - 1))."""
    half = family.rotated // 2
    query, key = torch.zeros(2, family.head_dim, family.width)
    for i in range(min(half, family.pairs)):
        turn = torch.tensor(family.base ** (-i / half))
        real, imaginary = (2 * i, 2 * i + 1) if family.neighbours else (i, i + half)
        query[real, _ONE], query[imaginary, _ONE] = _STEEP * turn.cos(), -_STEEP * turn.sin()
        key[real, _ONE] = _STEEP
    return query, key


def _by_places(model: Any, family: Family) -> tuple[Tensor, Tensor]:
    """With learned positions: cosines and sines of several frequencies."""
    frequencies = 100.0 ** (-torch.arange(16) / 16)
    angles = torch.arange(POSITIONS)[:, None] * frequencies
    positions = model.transformer.wpe.weight
    positions[:, _PLACES] = torch.cat([angles.cos(), angles.sin()], dim=1) * 0.3
    query, key = torch.zeros(2, family.head_dim, family.width)
    cos, sin = frequencies.cos().diag(), frequencies.sin().diag()
    turn = torch.cat([torch.cat([cos, sin], dim=1), torch.cat([-sin, cos], dim=1)])
    query[:32, _PLACES], key[:32, _PLACES] = turn * 3, torch.eye(32) * 3
    return query, key


def _by_slope(model: Any, family: Family) -> tuple[Tensor, Tensor]:
    """With ALiBi: the steepest head, kept from looking at the token itself."""
    return -_rows(family, _TOKEN), _rows(family, _TOKEN)


def _by_bias(model: Any, family: Family) -> tuple[Tensor, Tensor]:
    """With T5's relative bias, in which a distance of one is entry 1."""
    biases = model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    biases.zero_()
    biases[1, 0] = 30.0
    for name, parameter in model.named_parameters():
        if name.endswith("layer_norm.weight"):  # the initial factor makes them small, too
            parameter.fill_(1)
    query, key = torch.zeros(2, family.head_dim, family.width)
    return query, key


_NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_ROPE = {"rope_type": "default", "rope_theta": 1e6}
_LLAMA = {
    "vocab_size": CODES,
    "hidden_size": 256,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": POSITIONS,
    "rope_parameters": _ROPE,
    **_NO_IDS,
}
_GPT = {
    "vocab_size": CODES,
    "n_embd": 256,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": POSITIONS,
    "n_inner": 64,
    **_NO_IDS,
}
_MHA = {name: _LLAMA[name] for name in _LLAMA if name not in ("num_key_value_heads", "head_dim")}


def _in(path: str) -> Callable[[Any, int], Any]:
    def attention(model: Any, layer: int) -> nn.Module:
        found: nn.Module = model.get_submodule(path.format(layer))
        return found

    return attention


_SLOW = (*range(16, 32), *range(48, 64))  # of a whole head, those with the longest periods
_ALIBI = {"head_dim": 32, "width": 512, "content": tuple(range(32))}
_SELF = _in("model.layers.{}.self_attn")
FAMILIES = {
    "gpt2": Family(
        "GPT2Config", "GPT2LMHeadModel", _GPT, _in("transformer.h.{}.attn"), "thirds", _by_places
    ),
    "llama": Family(
        "LlamaConfig", "LlamaForCausalLM", _LLAMA, _SELF, "separate", _by_rotation, content=_SLOW
    ),
    "gpt_neox": Family(
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {**_MHA, "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5}},
        _in("gpt_neox.layers.{}.attention"),
        "by head",
        _by_rotation,
        rotated=32,
    ),
    "gptj": Family(
        "GPTJConfig",
        "GPTJForCausalLM",
        {**_GPT, "rotary_dim": 32},
        _in("transformer.h.{}.attn"),
        "separate",
        _by_rotation,
        rotated=32,
        neighbours=True,
        base=1e4,
    ),
    "falcon": Family(
        "FalconConfig",
        "FalconForCausalLM",
        {**_MHA, "multi_query": False, "parallel_attn": True, "alibi": False, "bias": False},
        _in("transformer.h.{}.self_attention"),
        "by head",
        _by_rotation,
        content=_SLOW,
    ),
    "gemma": Family(
        "GemmaConfig",
        "GemmaForCausalLM",
        _LLAMA,
        _SELF,
        "separate",
        _by_rotation,
        content=_SLOW,
        loud=1.6,  # embeddings are multiplied by 16
    ),
    "qwen3": Family(
        "Qwen3Config",
        "Qwen3ForCausalLM",
        _LLAMA,
        _SELF,
        "separate",
        _by_rotation,
        content=_SLOW,
        pairs=4,
        norms=3.0,
    ),
    "bloom": Family(
        "BloomConfig",
        "BloomForCausalLM",
        {**_NO_IDS, "vocab_size": CODES, "hidden_size": 512, "n_layer": 2, "n_head": 16},
        _in("transformer.h.{}.self_attention"),
        "by head",
        _by_slope,
        **_ALIBI,
    ),
    "mpt": Family(
        "MptConfig",
        "MptForCausalLM",
        {"vocab_size": CODES, "d_model": 512, "n_layers": 2, "n_heads": 16, "max_seq_len": 72},
        _in("transformer.blocks.{}.attn"),
        "thirds",
        _by_slope,
        **_ALIBI,
    ),
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "vocab_size": CODES,
            "d_model": 256,
            "d_kv": 64,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "initializer_factor": 0.1,
            "decoder_start_token_id": 0,
            **_NO_IDS,
        },
        _in("decoder.block.{}.layer.0.SelfAttention"),
        "separate",
        _by_bias,
        everywhere=True,
    ),
}
