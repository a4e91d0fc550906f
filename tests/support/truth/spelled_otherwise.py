"""The same config as somebody else would write it: other names, keys left out, null or too many.

What results may be another model, or none that transformers builds; it is the audit's task to say
what transformers makes of it.
"""

import random

from transformers import CONFIG_MAPPING, PreTrainedConfig

from random_configs import FIXED_SIZES, Config, declared_defaults, nullable

# Flags that choose a kernel or an output, or another class of model.
_NOT_FLAGS = frozenset(
    {
        *("is_encoder_decoder", "is_decoder", "add_cross_attention", "use_cache", "quant_mode"),
        *("return_dict", "output_hidden_states", "output_attentions", "output_router_logits"),
        *("use_mamba_kernels", "return_last_states", "use_fast_hash", "enable_audio_output"),
        *("add_bias_linear", "norm_topk_prob", "use_mambapy", "use_associative_scan"),
    }
)
# What many files carry although their class may not know it.
_STRAYS: dict[str, tuple[object, ...]] = {
    "head_dim": (8, 12, 16, 20),
    "num_key_value_heads": (1, 2, 4),
    "attention_bias": (True, False),
    "sliding_window": (5, 7, None),
    "sliding_window_pattern": (2, 3),
    "use_sliding_window": (True,),
    "max_window_layers": (0, 1, 2),
    "layer_types": (None,),
}


def spelled_otherwise(
    config: Config, chosen: random.Random, *, keep: frozenset[str] = frozenset()
) -> Config:
    """`config` with some keys changed, at every depth; those in `keep` are never left out."""
    config_class = CONFIG_MAPPING[config["model_type"]]
    values = {
        key: spelled_otherwise(value, chosen)
        if isinstance(value, dict)
        and key in config_class.sub_configs
        and value.get("model_type") in CONFIG_MAPPING
        else value
        for key, value in config.items()
    }
    _flip(values, config_class, chosen)
    _leave_out(values, config_class, chosen, keep)
    for key, among in _STRAYS.items():
        if not chosen.randrange(8):
            values[key] = chosen.choice(among)
    _kinds(values, chosen)
    _rename(values, config_class, chosen)
    return values


def _flip(values: Config, config_class: type[PreTrainedConfig], chosen: random.Random) -> None:
    for key, value in declared_defaults(config_class).items():
        if isinstance(value, bool) and key not in _NOT_FLAGS and not chosen.randrange(3):
            values[key] = bool(chosen.randrange(2))


def _leave_out(
    values: Config,
    config_class: type[PreTrainedConfig],
    chosen: random.Random,
    keep: frozenset[str],
) -> None:
    may_be_null = nullable(config_class)
    for key in list(values):
        if key in FIXED_SIZES or key in config_class.sub_configs or key in keep:
            continue
        if not chosen.randrange(8):
            values.pop(key)
        elif key in may_be_null and not chosen.randrange(12):
            values[key] = None


def _kinds(values: Config, chosen: random.Random) -> None:
    count = values.get("num_hidden_layers")
    if isinstance(count, int) and not chosen.randrange(6):
        kinds = ("full_attention", "sliding_attention")
        values["layer_types"] = [chosen.choice(kinds) for _ in range(count)]


def _rename(values: Config, config_class: type[PreTrainedConfig], chosen: random.Random) -> None:
    """Standard names for the class's own, and the other way round."""
    for standard, own in config_class.attribute_map.items():
        old, new = (own, standard) if own in values else (standard, own)
        if old in values and new not in values and not chosen.randrange(3):
            values[new] = values.pop(old)
