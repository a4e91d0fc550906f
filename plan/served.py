"""A model as engines serve it, by what its files hold: that is not in all what its class builds."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from headcount.arch.modules.prediction import built_prediction, without_built_prediction
from headcount.arch.read_config import Reading, read_config
from headcount.arch.registry import architecture_of
from headcount.arch.tying import head_is_stored_apart
from headcount.model.errors import InvalidConfigError, UnsupportedModelError

from .planned_model import PlannedModel


@lru_cache(maxsize=64)
def with_stored_head(model: PlannedModel) -> PlannedModel:
    """With the output head that files hold where the class ties it by its default alone: engines
    load one that is stored (maybe_untie_word_embeddings of vllm/config/model.py, tie_weights of
    transformers). Files that are at hand say themselves what they hold."""
    says_nothing = "tie_word_embeddings" not in model.config
    reading = _reading(model) if model.spec.tie_word_embeddings and says_nothing else None
    if reading is None:
        return model
    head = (model.spec.vocab_size or 0) * model.spec.hidden_size
    if not head or not head_is_stored_apart(reading.view, reading.text):
        return model
    return replace(
        _of_other_config(model, {**model.config, "tie_word_embeddings": False}, head),
        counted=(
            f"{head:,} parameters of an output head are counted: the class ties it by its default,"
            " and the language model's config does not, as files of such models have it."
        ),
    )


@lru_cache(maxsize=64)
def as_served(model: PlannedModel) -> PlannedModel:
    """The same without layers that predict further tokens, which the class of some models builds
    and engines load for speculation alone."""
    model = with_stored_head(model)
    found = architecture_of(model.spec.model_type)
    reading = _reading(model) if found and found.built_prediction else None
    ahead = built_prediction(reading) if reading else 0
    if not ahead:
        return model
    alone = _of_other_config(model, without_built_prediction(model.config), -ahead)
    return replace(alone, prediction_parameters=ahead)


def _reading(model: PlannedModel) -> Reading | None:
    """None where not the config says how large it is: files do, or a user."""
    if model.weights_bytes is not None:
        return None
    try:
        found = read_config(model.config, model.model_id)
        return found if found.parameters() == model.spec.parameters else None
    except (InvalidConfigError, UnsupportedModelError):
        return None


def _of_other_config(model: PlannedModel, config: Mapping[str, Any], more: int) -> PlannedModel:
    tied = config.get("tie_word_embeddings", model.spec.tie_word_embeddings)
    spec = replace(
        model.spec, parameters=(model.spec.parameters or 0) + more, tie_word_embeddings=tied
    )
    return replace(model, config=config, spec=spec)
