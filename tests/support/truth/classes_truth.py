"""Every class of transformers by the type of its config, and tiny models of them: what each holds,
and the cache that it makes of a text, kept or thrown away."""

import contextlib
import re
from collections.abc import Iterator
from functools import cache
from inspect import signature
from typing import Any
from unittest import mock

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.initialization import no_init_weights

import every_type
import state_configs
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.model.errors import HeadcountError
from headcount.running.built.built_layers import layers_of
from headcount.running.built.shapes_only import shapes_only
from random_configs import Config
from tiny_truth import SCATTERED, elements, read
from total_configs import total_config
from transformers_truth import total_parameters
from truth_record import CLASS_TOKENS as TOKENS
from truth_record import ENCODER_TOKENS, Line

_LABELS = (3, 5, 7, 11, 13)
_NO_MODEL = re.compile("Pre[Tt]rained")


@cache
def _by_type() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in dir(transformers):
        model = _public(name)
        if model is not None and model.config_class is not None:
            found.setdefault(model.config_class.model_type, []).append(name)
    transformers.logging.set_verbosity_error()  # one of all these modules turns it on
    return found


def _public(name: str) -> type[PreTrainedModel] | None:
    if name.startswith("_") or _NO_MODEL.search(name):
        return None
    with contextlib.suppress(ImportError, AttributeError):  # what another library would bring
        found = getattr(transformers, name)
        if isinstance(found, type) and issubclass(found, PreTrainedModel):
            return found
    return None


def classes_of(model_type: str) -> list[str]:
    """The public classes of transformers whose config is of `model_type`, by name."""
    return _by_type().get(model_type, [])


def labelled(config: Config, seed: int) -> Config:
    """The same with labels, of which there are some other than the usual two."""
    names = [f"L{index}" for index in range(_LABELS[seed % len(_LABELS)])]
    return {
        **config,
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def instance(name: str, config: Config, device: str = "meta") -> PreTrainedModel:
    """A model of the class `name`. Raises what the class raises for a config that it refuses."""
    parsed = read(config)
    parsed._attn_implementation = "eager"
    with torch.device(device), no_init_weights():
        model = getattr(transformers, name)(parsed)
    model.tie_weights()
    assert isinstance(model, PreTrainedModel)
    return model


CONFIGS = 2  # of each type
ATTEMPTS = 20


def types() -> list[str]:
    """Types of transformers that have classes."""
    known = (name for name in ARCHITECTURES if name in CONFIG_MAPPING)
    return sorted(name for name in known if classes_of(name))


def lines(model_type: str) -> Iterator[Line]:
    """Configs of the type, and what each of its classes holds of them."""
    found = 0
    for seed, config in _configs(model_type):
        if found == CONFIGS:
            return
        made = {name: held for name in classes_of(model_type) if (held := _held(name, config))}
        if made:
            yield {"model_type": model_type, "seed": seed, "config": config, "classes": made}
            found += 1
            if found == CONFIGS and read(config).is_encoder_decoder:
                yield from _alone(model_type, seed, config)
    if not found:
        reason = "its classes build none of the random configs that an audit takes"
        yield {"model_type": model_type, "reason": reason}


def _configs(model_type: str) -> Iterator[tuple[int, Config]]:
    """Random ones that an audit takes: transformers builds models that it cannot run."""
    for seed in range(101, 101 + ATTEMPTS):  # others than those of tools/built_classes.py
        config = labelled(total_config(model_type, seed), seed)
        if config.get("use_sliding_window") is False:
            config.pop("layer_types", None)  # no class runs such layers without a window
        if _runs(config):
            yield seed, config


def _alone(model_type: str, seed: int, config: Config) -> Iterator[Line]:
    """The same without an encoder, which most classes build all the same; attention is not told
    apart there, where it is looked for by what the config says."""
    alone = {**config, "is_encoder_decoder": False}
    made = {name: held for name in classes_of(model_type) if (held := _held(name, alone))}
    for held in made.values():
        held.pop("attention", None)
    if made:
        yield {"model_type": model_type, "seed": seed, "config": alone, "classes": made}


def _runs(config: Config) -> bool:
    try:
        read_config(config, "config")
    except HeadcountError:
        return False
    return True


def _held(name: str, config: Config) -> Line | None:
    """Parameters of a class, those of attention where its layers are told apart, and elements of
    its cache; None for a config that it does not take."""
    try:
        model = instance(name, config)
    except Exception:
        return None
    held: Line = {"parameters": total_parameters(model)}
    if _plain(config["model_type"]):
        with contextlib.suppress(LookupError, AttributeError, NotImplementedError):
            layers = layers_of(model, scattered=config["model_type"] in SCATTERED)
            held["attention"] = sum(mixer.total for layer in layers for mixer in layer.mixers)
        with contextlib.suppress(Exception):  # it asks for more than tokens
            held["cache"] = _cache(model)
    return held


def _plain(model_type: str) -> bool:
    """Language models whose layers keep keys and values alone."""
    whole = not CONFIG_MAPPING[model_type].sub_configs and model_type not in state_configs.TYPES
    return whole and any(model_type == known for known, _ in every_type.jobs())


def _cache(model: PreTrainedModel) -> int:
    """Elements of all that is cached of a text of TOKENS, after an encoder's of ENCODER_TOKENS."""
    made: list[Cache] = []
    begin = Cache.__init__

    def noted(cache: Cache, *args: Any, **kwargs: Any) -> None:
        made.append(cache)
        begin(cache, *args, **kwargs)

    known = signature(model.forward).parameters
    two = "decoder_input_ids" in known
    ids = torch.zeros(1, ENCODER_TOKENS if two else TOKENS, dtype=torch.long, device="meta")
    given = {"input_ids": ids}
    if two:
        given["decoder_input_ids"] = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    model.eval()
    with (
        mock.patch.object(Cache, "__init__", noted),
        torch.no_grad(),
        torch.device("meta"),
        shapes_only(model),
    ):
        model(**given)
    held = (cache for cache in made if not isinstance(cache, EncoderDecoderCache))
    return sum(sum(elements(cache)) for cache in held)
