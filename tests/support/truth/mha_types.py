"""Tiny random models of transformers' text generators, and K/V heads tied in groups by hand.

What ties them is written from transformers' sources, module by module: it knows nothing of the
plan's layouts.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache

from random_configs import random_config
from tiny_truth import build, class_of, read, whole

HEADS, KV, HEAD_DIM = 8, 2, 8
HIDDEN = HEADS * HEAD_DIM
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9], [11, 3, 90, 21, 65, 77, 30, 4]])
NEW_TOKENS = 6
ATTEMPTS = 20

_ALWAYS = ("is_decoder", "use_cache")  # set even where the sample leaves them out
_SAME = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "n_embed", "emb_dim", "dim"), HIDDEN),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), HEADS),
    **dict.fromkeys(("attention_heads",), HEADS),
    **dict.fromkeys(("d_kv", "head_dim", "dim_head"), HEAD_DIM),
    **{"multi_query": False, "new_decoder_architecture": False, "is_decoder": True},
    **{"use_cache": True, "rotary_dim": 4, "add_cross_attention": False},
}
_KEYS_AND_VALUES = frozenset(
    {
        *("k_proj", "v_proj", "key", "value", "key_proj", "value_proj", "Wk", "Wv"),
        *("k", "v", "project_k", "project_v"),
    }
)
_TEXTS = ("text_config", "decoder")  # nested configs of a language model
# Flags that a sweep over all types sets for one of them: what else its class can do.
VARIANTS: dict[str, dict[str, Any]] = {
    "lfm2_moe": {"num_hidden_layers": 2, "layer_types": ["full_attention", "conv"]},
    "prophetnet": {"num_encoder_attention_heads": HEADS, "num_decoder_attention_heads": HEADS},
    "musicgen_decoder": {"num_codebooks": 2},
    "musicgen_melody_decoder": {"num_codebooks": 2},
    "falcon": {"alibi": True, "bias": True, "parallel_attn": False},
}

# Types whose class in transformers 5.24 fails in its second step with a cache: its own fault.
NO_CACHED_STEPS = ("prophetnet", "headcount_prophetnet")


def tiny_config(model_type: str, task: str, seed: int, **more: Any) -> dict[str, Any]:
    """A random config with 8 heads of 8."""
    config = random_config(model_type, seed, task)
    config |= {k: _of_size(v) for k, v in config.items() if k in _TEXTS and isinstance(v, dict)}
    return {**_of_size(config), **more}


def _of_size(config: dict[str, Any]) -> dict[str, Any]:
    same = {key: value for key, value in _SAME.items() if key in (*config, *_ALWAYS)}
    return {**config, **same, **VARIANTS.get(config["model_type"], {})}


def tiny_model(
    model_type: str, task: str, dtype: torch.dtype = torch.float64, **more: Any
) -> PreTrainedModel:
    """A model of 8 heads of 8, with random values in every parameter. Raises what the class raises
    if it takes none of the random configs."""
    error: Exception | None = None
    for seed in range(ATTEMPTS):
        torch.manual_seed(seed)
        try:
            model = _built(read(tiny_config(model_type, task, seed, **more)), task).to(dtype)
            for parameter in model.parameters():
                parameter.data.normal_(std=0.2)
            for buffer in model.buffers():
                if buffer.is_floating_point() and not buffer.isfinite().all():
                    buffer.data.zero_()
            model.eval().tie_weights()
            settle(model)
            greedy(model)
            return model
        except Exception as failure:
            error = failure
    assert error is not None
    raise error


def _built(config: PreTrainedConfig, task: str) -> PreTrainedModel:
    """The whole model where its language model is nested, unless the class is that one's (MusicGen:
    other mappings have the whole)."""
    takes_whole = config.sub_configs and class_of(config, task).config_class is type(config)
    return whole(config, task) if takes_whole else build(config, task)


def settle(model: PreTrainedModel) -> None:
    settings = model.generation_config
    settings.pad_token_id, settings.bos_token_id, settings.eos_token_id = 0, 1, None
    settings.forced_eos_token_id = settings.forced_bos_token_id = None
    if model.config.is_encoder_decoder or hasattr(model.config, "num_codebooks"):
        settings.decoder_start_token_id = 2
        model.config.decoder_start_token_id = 2


def inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """What the model reads: tokens, or features of a sound."""
    main = model.main_input_name
    if books := getattr(model.config, "num_codebooks", None):  # of one sequence, with a text
        text = torch.rand((1, 4, HIDDEN), generator=torch.Generator().manual_seed(0))
        tokens = {"input_ids": TOKENS[:books], "attention_mask": torch.ones_like(TOKENS[:1])}
        return {**tokens, "encoder_hidden_states": text.to(model.dtype)}
    if main == "input_ids":
        return {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}
    generator = torch.Generator().manual_seed(0)
    bins = getattr(model.config, "num_mel_bins", None) or 8
    shape = (
        (2, bins, 2 * model.config.max_source_positions) if main == "input_features" else (2, 40)
    )
    sound = torch.rand(shape, generator=generator, dtype=torch.float64)
    return {main: sound}


def logits(model: PreTrainedModel) -> torch.Tensor:
    found: torch.Tensor = _forward(model).logits
    return found


def greedy(model: PreTrainedModel) -> tuple[torch.Tensor, Any]:
    """The tokens of a greedy generation, and the cache that it left."""
    cached = model.config.model_type not in NO_CACHED_STEPS
    out: Any = model.generate(
        **inputs(model),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        num_beams=1,
        num_return_sequences=1,
        use_cache=cached,
        return_dict_in_generate=True,
    )
    left = out if cached else _forward(model, use_cache=True)
    return out.sequences, left.get("cache", left.get("past_key_values"))


def _forward(model: PreTrainedModel, **options: Any) -> Any:
    given = inputs(model)
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = TOKENS
    with torch.no_grad():
        return model(**given, **options)


def cached_heads(cache: Any) -> set[int]:
    """Numbers of K/V heads that stand in the cache; empty if it keeps no keys."""
    if cache is None:
        return set()
    if isinstance(cache, EncoderDecoderCache):
        return cached_heads(cache.self_attention_cache) | cached_heads(cache.cross_attention_cache)
    keys = [getattr(layer, "keys", None) for layer in getattr(cache, "layers", ())]
    return {key.shape[1] for key in keys if key is not None and key.dim() == 4}


def tie(model: PreTrainedModel, kv: int = KV) -> None:
    """Gives the K heads of each group the values of its first, and the V heads likewise."""
    for name, module in model.named_modules():
        word = name.rpartition(".")[2]
        if not hasattr(module, "weight") or _elsewhere(model, name):
            continue
        for parameter in (module.weight, getattr(module, "bias", None)):
            if parameter is None:
                continue
            rows = parameter.data
            if word == "c_attn" and type(module).__name__ == "Conv1D":
                rows = rows.T if rows.dim() == 2 else rows
            for part in _key_value_rows(word, rows.shape[0], type(module).__name__):
                heads = rows[part].unflatten(0, (kv, -1, HEAD_DIM))
                rows[part] = heads[:, :1].expand_as(heads).flatten(0, 2).clone()


def _elsewhere(model: PreTrainedModel, name: str) -> bool:
    """Whether a module belongs to an encoder, which keeps no cache."""
    decoder = re.search(r"decoder", name)
    return model.config.is_encoder_decoder and not decoder


def _key_value_rows(word: str, rows: int, kind: str) -> Iterator[torch.Tensor]:
    """The rows of K, then of V, in the order of their heads."""
    index = torch.arange(rows)
    if word in _KEYS_AND_VALUES:
        yield index
    elif word == "query_key_value" or (
        word == "c_attn" and kind == "Linear" and rows == 3 * HIDDEN
    ):
        per_head = index.view(HEADS, 3, HEAD_DIM)
        yield per_head[:, 1].flatten()
        yield per_head[:, 2].flatten()
    elif word in ("c_attn", "Wqkv"):
        yield from index.split(HIDDEN)[-2:]
    elif word == "qkv_proj":
        blocks = index.view(4, 3, HIDDEN // 4)  # q, v, k
        yield blocks[:, 2].flatten()
        yield blocks[:, 1].flatten()
