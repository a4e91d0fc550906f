"""H421, H422: what speaks against the reading of a type or a class that nothing describes."""

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


_OF_ANOTHER = (
    "transformers builds what model_type says, engines what architectures says: correct one"
)
_OF_NONE = "nothing is known of what it builds: the layers are those of the type's own class"


@rule("H422", "foreign-class", "warning", _OF_ANOTHER)
def foreign_class(facts: ConfigFacts) -> Iterator[Sighting]:
    """The class in architectures is none of the model_type: of another one, or one nobody knows."""
    if facts.foreign is None:
        return
    name, model_type, other, part = facts.foreign
    where = f"{part}.architectures" if part else "architectures"
    if other is None:
        message = f"names {name}, no class of model_type {model_type!r} that is known"
        yield Sighting(where, message, severity="note", hint=_OF_NONE)
    else:
        message = f"names {name}, a class of {other!r}, and model_type is {model_type!r}"
        yield Sighting(where, f"{message}: read as {other!r}")


RULES = (doubtful, foreign_class)
