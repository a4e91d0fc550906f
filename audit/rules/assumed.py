"""H421: what speaks against the reading of a type that nothing describes."""

from collections.abc import Iterator

from .config_facts import ConfigFacts
from .rule import Sighting, rule


@rule(
    "H421",
    "doubtful-assumption",
    "warning",
    "nothing is known of what its class does: compare with the class's code, or with the weights",
)
def doubtful(facts: ConfigFacts) -> Iterator[Sighting]:
    """Nothing describes the model_type, and its config speaks against what is assumed."""
    for about, taken, _, doubt in facts.spec.assumptions:
        if doubt is not None:
            yield Sighting(about, f"assumed: {taken}; {doubt}")


RULES = (doubtful,)
