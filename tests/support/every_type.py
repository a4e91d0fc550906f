"""Every model_type of transformers' mappings: a tiny model of it against what an audit says."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from headcount.arch.read_config import read_config
from headcount.model.mixers import Parts
from headcount.model.spec import Layer
from headcount.running.built.built_layers import SCATTERED, layer_list, layers_of, mixers_of
from random_configs import Config, random_config
from spelled_otherwise import spelled_otherwise
from tiny_truth import build, cached, read, written
from transformers_truth import CachedElements, LayerTruth

# (tokens, those decoded one by one): below, at and above the windows of random_configs
LENGTHS = ((5, 0), (8, 0), (20, 0))
DECODED = ((5, 2), (8, 3), (20, 4))
ENCODER_TOKENS = 7
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
    """A config, as given and as save_pretrained writes it, and what the model of it holds."""

    given: Config
    saved: Config
    written_out: Config  # with every default
    layers: list[LayerTruth]
    caches: dict[tuple[int, int], CachedElements]


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
            case = _case(given, task, lengths)
        except Exception as failure:
            error = failure  # a combination that the class refuses, or cannot run
            continue
        yield case
        found += 1
        if found == count:
            return
    raise NotBuildableError(f"{model_type}: {found} of {count} configs run; {error}") from error


def _case(given: Config, task: str, lengths: Sequence[tuple[int, int]]) -> Case:
    config = read(given)
    model = build(config, task)
    layers = layers_of(model)
    crossing = any(mixer.kind == "cross" for layer in layers for mixer in layer.mixers)
    crossing &= model.config.model_type not in SCATTERED  # keep nothing of what they see
    crossing |= model.config.model_type == "musicgen_melody_decoder"  # in front of its tokens
    encoder_tokens = ENCODER_TOKENS if crossing or model.config.is_encoder_decoder else 0
    whole = model.config.model_type == given["model_type"]
    return Case(
        given=given,
        saved=written(model.config if whole else config),
        written_out=written(model.config if whole else config, whole=True),
        layers=layers,
        caches={
            (tokens, decoded): cached(model, tokens, encoder_tokens, decoded=decoded)
            for tokens, decoded in lengths
        },
    )


def differences(config: Config, case: Case) -> Iterator[str]:
    """Where the audit of `config` differs from the model of `case`; nothing is right."""
    layers = [
        layer for layer in read_config(config, "config").spec.layers if layer.stack != "vision"
    ]
    pairs = [(layer, mixer) for layer in layers for mixer in layer.mixers]
    own = [pair for pair in pairs if pair[1].parameters().total]  # others run a module again
    true = [mixer for layer in case.layers for mixer in layer.mixers]
    if config["model_type"] in SCATTERED:
        own.sort(key=lambda pair: tuple(pair[1].parameters()))
        true.sort(key=lambda mixer: tuple(mixer.parts.get(name, 0) for name in Parts._fields))
    if len(own) != len(true):
        yield f"{len(own)} mixers, {len(true)} built"
    for (layer, mixer), built in zip(own, true, strict=False):
        if not agree(mixer.parameters(), built.parts):
            yield f"{layer.stack} {layer.index}: {mixer.parameters()}, built {built.parts}"
    decoder = [layer for layer in layers if layer.stack == "decoder" or _elements(layer, 1)]
    for (tokens, _), truth in case.caches.items():
        said = [_elements(layer, tokens) for layer in decoder]
        held = truth.total(len(said))
        if said != held:
            yield f"cache of {tokens} tokens: {said}, held {held}"


def agree(parts: Parts, true: dict[str, int]) -> bool:
    """Each part alike, or the sum of those that the module fuses."""
    fused = sum(true.get(name, 0) for name in ("q", "k", "v", "kv", "qkv"))
    separate = all(getattr(parts, name) == true.get(name, 0) for name in ("q", "k", "v"))
    alike = all(getattr(parts, name) == true.get(name, 0) for name in ("o", "norm", "other"))
    is_fused = "qkv" in true or "kv" in true
    return alike and (parts.q + parts.k + parts.v == fused if is_fused else separate)


def _elements(layer: Layer, tokens: int) -> int:
    return sum(mixer.state_elements(tokens, ENCODER_TOKENS) for mixer in layer.mixers)


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
            assert [*differences(config_json, case)] == [], config_json


def odd_config(model_type: str, seed: int, task: str) -> Config:
    """A config that few would write, the same for the same seed."""
    chosen = random.Random(f"odd {model_type} {task} {seed}")
    return spelled_otherwise(random_config(model_type, seed, task), chosen)


def tower_differences(model_type: str, seed: int) -> list[str]:
    """The same for the parameters of a model that reads no tokens, or of two towers."""
    config = random_config(model_type, seed)
    model = build(read(config), "base")
    towers = [getattr(model, name, None) for name in ("text_model", "vision_model")]
    if all(towers):
        built = [mixer for tower in towers for la in layer_list(tower) for mixer in mixers_of(la)]
    else:
        built = [mixer for layer in layers_of(model) for mixer in layer.mixers]
    own = [m for layer in read_config(config, "config").spec.layers for m in layer.mixers]
    return [
        f"{mixer}, built {true.parts}"
        for mixer, true in zip(own, built, strict=True)
        if not agree(mixer.parameters(), true.parts)
    ]


def whole_jobs() -> Iterator[tuple[str, str]]:
    """Those of models that generate text, without the causal class of a wrapper, which is that of
    its text type."""
    known = jobs()
    for model_type, task in known:
        nested = bool(CONFIG_MAPPING[model_type].sub_configs)
        whole = (model_type, "image_text") in known
        if task != "masked" and not (task == "causal" and nested and whole):
            yield model_type, task
