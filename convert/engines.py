"""Which engines load a model whose K/V heads were merged, by its model_type."""

from collections.abc import Iterator

from headcount.arch.engine_types import engines_with
from headcount.arch.registry import architecture_of


def engines(model_type: str) -> Iterator[str]:
    """The engines that load a config.json of `model_type` with fewer K/V heads: those that list
    its class, but for those that do not read the number. transformers loads all that stays in its
    class."""
    yield "transformers"
    architecture = architecture_of(model_type)
    not_in = () if architecture is None else architecture.conversion.not_in
    yield from (name for name in engines_with(model_type) if name not in not_in)
