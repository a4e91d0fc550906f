"""Widths that the heads do not divide: which classes of transformers round head_dim down.

Some config classes refuse such a width, some models cannot be built of it, and others are built and
fail in the first forward. The rest computes with hidden_size // num_attention_heads.
"""

from typing import NamedTuple

import torch
from transformers import CONFIG_MAPPING, PreTrainedModel

import state_configs
import states_truth
import whole_models
from headcount.arch.registry import ARCHITECTURES
from random_configs import Config
from tiny_truth import build, cached, read

ATTEMPTS = 20  # configs tried until one runs
TOKENS, ENCODED = 5, 7
_HEADS = 8  # so that a width between two multiples of it is a multiple of 4, as kernels ask for
_OF_STACKS = ("encoder_attention_heads", "decoder_attention_heads")
_WIDTHS = ("head_dim", "attention_head_dim")


class Undivided(NamedTuple):
    """A config, and the model of it that runs; None where the class refuses it, or fails."""

    config: Config
    model: PreTrainedModel | None


def jobs() -> dict[str, str]:
    """model_type -> task of the types that nest no other model."""
    found = ((name, task) for name, task in whole_models.jobs() if name in ARCHITECTURES)
    plain = ((name, task) for name, task in found if not CONFIG_MAPPING[name].sub_configs)
    return dict(reversed([*plain]))  # the first task of each


def undivided(model_type: str, task: str) -> Undivided | None:
    """None where no config of the type runs that its heads divide, so that nothing is known."""
    own = CONFIG_MAPPING[model_type].attribute_map
    width, heads = (own.get(name, name) for name in ("hidden_size", "num_attention_heads"))
    for seed in range(ATTEMPTS):
        config = whole_models.config_of(model_type, task, seed)
        config = {key: value for key, value in config.items() if key not in _WIDTHS}
        hidden = config.get(width)
        if type(config.get(heads)) is not int or type(hidden) is not int or hidden % _HEADS:
            continue
        config |= {name: _HEADS for name in (heads, *_OF_STACKS) if name in config}
        if _runs(config, task) is not None:
            config[width] = hidden + _HEADS // 2
            model = _runs(config, task)
            if model is None:
                return Undivided(config, None)
            model.tie_weights()
            return Undivided({**config, "architectures": [type(model).__name__]}, model)
    return None


def _runs(config: Config, task: str) -> PreTrainedModel | None:
    try:
        return _run(config, task)
    except Exception:  # a combination that the class refuses, or cannot run
        return None


def _run(config: Config, task: str) -> PreTrainedModel:
    model: PreTrainedModel
    if config["model_type"] in state_configs.TYPES:
        model = states_truth.build(config, torch.float32)
        states_truth.run(model, TOKENS, stepwise=0)
        return model
    model = build(read(config), task)
    cached(model, TOKENS, ENCODED if model.config.is_encoder_decoder else 0)
    return model
