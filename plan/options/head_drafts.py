"""Drafts that are heads alone: MLPs over the hidden state of the model, which keep no cache
(Medusa). Their configs describe no model, so no audit reads them."""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.model.numbers import size
from headcount.model.spec import ModelSpec
from headcount.sources.found import FoundModel

from ..planned_model import PlannedModel

MEDUSA = "medusa"
_DEFAULTS = {"hidden_size": 4096, "vocab_size": 32001, "num_heads": 5, "num_hidden_layers": 1}


def head_draft(found: FoundModel) -> PlannedModel | None:
    """The draft where `found` is one of these; None where it is a model. Raises HeadcountError for
    heads that no engine of today drafts with."""
    config = found.config or {}
    kind = config.get("model_type")
    if kind == "mlp_speculator":
        raise HeadcountError(
            f"{found.id} is an mlp_speculator: vLLM drafted with one in its V0 engine alone, until"
            " 0.10, and its V1 engine ends with `Unknown speculative decoding method`: draft with"
            " EAGLE-3, MTP, a draft model or ngram"
        )
    if kind != MEDUSA and "medusa_num_heads" not in config:
        return None
    values = _values(config)
    return PlannedModel(
        model_id=found.id,
        spec=ModelSpec(
            model_type=MEDUSA,
            layers=(),
            hidden_size=values["hidden_size"],
            vocab_size=values["vocab_size"],
            dtype=None,
            max_position_embeddings=None,
            encoder_tokens=0,
            tie_word_embeddings=False,
        ),
        config={**config, **values},
    )


def _values(config: Mapping[str, Any]) -> dict[str, int]:
    """By the names that MedusaConfig makes of a file's, and with its defaults
    (vllm/transformers_utils/configs/medusa.py)."""
    named = dict(config)
    for key, value in config.items():
        if "num" in key and "heads" in key:
            named["num_heads"] = value
        elif "num" in key and "layers" in key:
            named["num_hidden_layers"] = value
    return {key: size(named.get(key)) or default for key, default in _DEFAULTS.items()}
