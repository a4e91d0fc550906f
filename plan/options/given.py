"""Options whose texts say what drafts, and what a prompt may have."""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import HeadcountError

from .modalities import parse_image_size, parse_limits
from .speculation import Algorithm, FindModel, Speculation, parse_speculative_config

# Of the command line's, those of SGLang's drafts: what follows the prefix -> the field.
_ALGORITHM = {
    "speculative_draft_model_path": "draft",
    "speculative_num_steps": "steps",
    "speculative_eagle_topk": "topk",
    "speculative_num_draft_tokens": "tokens",
}


def parsed(given: Mapping[str, Any], find: FindModel) -> dict[str, object]:
    """The fields of a request that the texts `given`, by the names of their options, fill; `find`
    plans the model that drafts. Raises HeadcountError."""
    found: dict[str, object] = {}
    if (text := given.get("speculative_config")) is not None:
        found["speculative_config"] = parse_speculative_config(text, find)
    if (text := given.get("limit_mm_per_prompt")) is not None:
        found["limit_mm_per_prompt"] = parse_limits(text)
    if (text := given.get("mm_processor_kwargs")) is not None:
        found["mm_processor_kwargs"] = parse_image_size(text)
    if (drafts := _algorithm(given, find)) is not None:
        found["speculative_algorithm"] = drafts
    return found


def _algorithm(given: Mapping[str, Any], find: FindModel) -> Speculation | None:
    more = {field: given[name] for name, field in _ALGORITHM.items() if name in given}
    name = given.get("speculative_algorithm")
    if name is not None:
        return Algorithm(name=name, **more).speculation(find)
    if more:
        raise HeadcountError("--speculative-… of SGLang need --speculative-algorithm")
    return None
