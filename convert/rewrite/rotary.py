"""Which rows of a q or k head rotate together, by type: measured on models that transformers builds.

`tests/convert/test_freedom.py` turns keys by what stands here, in every type that converts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.audit.errors import HeadcountError
from headcount.audit.family.resolve import GROUPED, read_config

from ..plan.source import CONFIG, Source

Rows = tuple[int, ...]
# Rows i and i + half turn together.
HALVES: frozenset[str] = frozenset()
# Rows 2 i and 2 i + 1 turn together.
PAIRS: frozenset[str] = frozenset()
# Nothing turns.
NONE: frozenset[str] = frozenset()


def rotated_rows(source: Source, head_dim: int) -> tuple[Rows, Rows] | None:
    """The rows of a head that are real and imaginary parts of what is rotated, in the order of
    their frequencies; empty for a type without rotary embedding, None where that is not known."""
    model_type = text_type(source)
    if model_type in NONE:
        return (), ()
    if model_type not in HALVES | PAIRS:
        return None
    count = rotated_count(source, head_dim)
    return None if count is None else rows_of(count, model_type in PAIRS)


def rows_of(count: int, in_pairs: bool) -> tuple[Rows, Rows]:
    """The real and the imaginary ones of the first `count` rows."""
    if in_pairs:
        return tuple(range(0, count, 2)), tuple(range(1, count, 2))
    return tuple(range(count // 2)), tuple(range(count // 2, count))


def text_type(source: Source) -> str:
    """The type of the language model, of which ours are spelled as what they were made from."""
    return read_config(source.config, CONFIG).text.model_type.removeprefix(GROUPED)


def rotated_count(source: Source, head_dim: int) -> int | None:
    """How many rows of a head rotate, as the class reads the config; None where its layers differ,
    or where the class does not say."""
    config = _as_read(source)
    if config is None:
        return None
    absolute = config.get("rotary_dim")
    if "rope_parameters" not in config:
        return absolute if isinstance(absolute, int) else head_dim
    shares = set(_shares(config["rope_parameters"] or {}))
    if len(shares) != 1:
        return None
    count = int(head_dim * shares.pop())
    return None if count % 2 else count


def _shares(rope: Mapping[str, Any]) -> Iterator[float]:
    """The rotated share of a head, of each kind of layer."""
    nested = [value for value in rope.values() if isinstance(value, dict)]
    for one in nested or [rope]:
        yield float(one.get("partial_rotary_factor") or 1.0)


def _as_read(source: Source) -> dict[str, Any] | None:
    """The language model's config as transformers reads it, with its class's defaults."""
    from transformers import CONFIG_MAPPING

    values = dict(source.config)
    model_type = str(values.pop("model_type")).removeprefix(GROUPED)
    try:
        config = CONFIG_MAPPING[model_type].from_dict(values)
        text: dict[str, Any] = config.get_text_config(decoder=True).to_dict()
    except Exception:  # whatever a class raises for a config that the audit can read
        return None
    return text
