"""Every model_type of transformers' mappings: a tiny model of it against what an audit says."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from against_record import differences
from headcount.running.built.built_layers import (
    BuiltLayer,
    layer_list,
    layers_of,
    mixers_of,
)
from random_configs import Config, random_config
from spelled_otherwise import spelled_otherwise
from tiny_truth import SCATTERED, build, cached, read, written
from truth_record import ENCODER_TOKENS, Line, counted

# (tokens, those decoded one by one): below, at and above the windows of random_configs, and above
# them an even and an odd number
LENGTHS = ((5, 0), (8, 0), (13, 0), (20, 0), (21, 0))
DECODED = ((5, 2), (8, 3), (13, 4), (20, 4), (21, 1))
ATTEMPTS = 40  # random configs tried for those that transformers accepts

MAPPINGS: dict[str, dict[str, Any]] = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "image_text": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    "multimodal": modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
}


class NotBuildableError(Exception):
    """transformers accepts or runs none of the random configs."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A config, as given and as save_pretrained writes it, and what the model of it holds, as the
    record says it."""

    seed: int
    given: Config
    saved: Config
    written_out: Config  # with every default
    truth: Line


def cases(
    model_type: str,
    task: str,
    count: int,
    lengths: Sequence[tuple[int, int]] = LENGTHS,
    config: Callable[[str, int, str], Config] = random_config,
) -> Iterator[Case]:
    """`count` cases of `model_type`; raises NotBuildableError if there are not as many."""
    found, error = 0, None
    for seed in range(ATTEMPTS):
        given = config(model_type, seed, task)
        try:
            case = _case(given, seed, task, lengths)
        except Exception as failure:
            error = failure  # a combination that the class refuses, or cannot run
            continue
        yield case
        found += 1
        if found == count:
            return
    raise NotBuildableError(f"{model_type}: {found} of {count} configs run; {error}") from error


def _case(given: Config, seed: int, task: str, lengths: Sequence[tuple[int, int]]) -> Case:
    config = read(given)
    model = build(config, task)
    scattered = model.config.model_type in SCATTERED
    layers = layers_of(model, scattered=scattered)
    crossing = any(mixer.kind == "cross" for layer in layers for mixer in layer.mixers)
    crossing &= model.config.model_type not in SCATTERED  # keep nothing of what they see
    crossing |= model.config.model_type == "musicgen_melody_decoder"  # in front of its tokens
    encoder_tokens = ENCODER_TOKENS if crossing or model.config.is_encoder_decoder else 0
    whole = model.config.model_type == given["model_type"]
    held = {
        str(tokens): cached(model, tokens, encoder_tokens, decoded=decoded).total(0)
        for tokens, decoded in lengths
    }
    truth: Line = {"layers": layers_built(layers)}
    if given["model_type"] in SCATTERED:
        truth["scattered"] = True
    return Case(
        seed=seed,
        given=given,
        saved=written(model.config if whole else config),
        written_out=written(model.config if whole else config, whole=True),
        truth={**truth, "cache": {tokens: counted(layers) for tokens, layers in held.items()}},
    )


def layers_built(layers: list[BuiltLayer]) -> list[list[Any]]:
    """As the record holds them."""
    each = ([layer.stack, [mixer.parts for mixer in layer.mixers]] for layer in layers)
    return [[number, *layer] for number, layer in counted(each)]


@cache
def jobs() -> tuple[tuple[str, str], ...]:
    """(model_type, task) of all mappings; a type counts once for each class that builds it."""
    found: dict[tuple[str, str], None] = {}
    for task, mapping in MAPPINGS.items():
        for model_type in mapping:
            twice = task == "multimodal" and (model_type, "image_text") in found
            if not twice:
                found[model_type, "image_text" if task == "multimodal" else task] = None
    return tuple(found)


def compare(
    model_type: str,
    task: str,
    count: int,
    lengths: Sequence[tuple[int, int]] = LENGTHS,
    config: Callable[[str, int, str], Config] = random_config,
) -> None:
    """Asserts that `count` models are as audited, from the config as given and as saved."""
    for case in cases(model_type, task, count, lengths, config):
        for config_json in (case.given, case.saved, case.written_out):
            assert differences("decoders", case.truth, config_json) == [], config_json


def respelled_config(model_type: str, seed: int, task: str) -> Config:
    """A config that few would write, the same for the same seed."""
    chosen = random.Random(f"odd {model_type} {task} {seed}")
    return spelled_otherwise(random_config(model_type, seed, task), chosen)


def tower_truth(config: Config) -> Line:
    """The parameters of a model that reads no tokens, or of two towers."""
    model = build(read(config), "base")
    named = dict(model.named_children())
    if not {"text_model", "vision_model"} <= named.keys():
        scattered = model.config.model_type in SCATTERED
        return {"layers": layers_built(layers_of(model, scattered=scattered))}
    built = [
        BuiltLayer(stack=stack, index=index, mixers=tuple(mixers_of(layer)))
        for stack, tower in (("text", named["text_model"]), ("vision", named["vision_model"]))
        for index, layer in enumerate(layer_list(tower))
    ]
    return {"layers": layers_built(built)}


def whole_jobs() -> Iterator[tuple[str, str]]:
    """Those of models that generate text, without the causal class of a wrapper, which is that of
    its text type."""
    known = jobs()
    for model_type, task in known:
        nested = bool(CONFIG_MAPPING[model_type].sub_configs)
        whole = (model_type, "image_text") in known
        if task != "masked" and not (task == "causal" and nested and whole):
            yield model_type, task
