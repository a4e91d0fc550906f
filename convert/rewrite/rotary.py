"""Which rows of a q or k head rotate together: measured on what transformers builds.

`tests/convert/homes/test_freedom.py` turns keys by what is said here, in every type that converts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.arch.architecture import Rotary
from headcount.arch.our_types import base_type

from ..plan.source import ConversionSource

Rows = tuple[int, ...]


def rotated_rows(
    rotary: Rotary | None, config: Mapping[str, Any] | None, head_dim: int
) -> tuple[Rows, Rows] | None:
    """The rows of a head that are real and imaginary parts of what is rotated, in the order of
    their frequencies; empty for a type without rotary embedding, None where that is not known.

    `config` is the language model's, as transformers reads it.
    """
    if rotary == "none":
        return (), ()
    if rotary is None or config is None:
        return None
    count = _rotated_count(config, head_dim)
    return None if count is None else _rows_of(count, in_pairs=rotary == "pairs")


def _rows_of(count: int, *, in_pairs: bool) -> tuple[Rows, Rows]:
    """The real and the imaginary ones of the first `count` rows."""
    if in_pairs:
        return tuple(range(0, count, 2)), tuple(range(1, count, 2))
    return tuple(range(count // 2)), tuple(range(count // 2, count))


def _rotated_count(config: Mapping[str, Any], head_dim: int) -> int | None:
    """How many rows of a head rotate; None where layers differ, or that is no even number of its
    rows: a config may say anything."""
    absolute = config.get("rotary_dim")
    if "rope_parameters" not in config:
        count = absolute if isinstance(absolute, int) else head_dim
        return count if 0 <= count <= head_dim else None
    shares = set(_shares(config["rope_parameters"] or {}))
    share = shares.pop() if len(shares) == 1 else None
    if share is None or not 0 <= share <= 1:
        return None
    count = int(head_dim * share)
    return None if count % 2 else count


def _shares(rope: Mapping[str, Any]) -> Iterator[float]:
    """The rotated share of a head, of each kind of layer."""
    nested = [value for value in rope.values() if isinstance(value, dict)]
    for one in nested or [dict(rope)]:
        yield float(one.get("partial_rotary_factor") or 1.0)


def config_as_read(source: ConversionSource) -> dict[str, Any] | None:
    """The language model's config with what its class adds to it; None if the class, which may be
    of another release, refuses the file."""
    from transformers import CONFIG_MAPPING

    from headcount.running.built.meta_model import decoded, without_code

    values = dict(decoded(without_code(source.config)))
    model_type = base_type(str(values.pop("model_type", "")))
    try:
        config = CONFIG_MAPPING[model_type].from_dict(values)
        text: dict[str, Any] = config.get_text_config(decoder=True).to_dict()
    except Exception:  # whatever a class raises for a config that the audit can read
        return None
    return text
