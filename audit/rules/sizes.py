"""H418, H419: sizes of a config that its class does not read, or that nothing here counts."""

from collections.abc import Iterator

from .config_facts import ConfigFacts
from .rule import Sighting, rule

SEVERAL = 2  # one size left out may be one that the class does not use


@rule(
    "H418",
    "sizes-by-default",
    "warning",
    "the class would build its defaults for them: give the sizes by the names that the class reads",
)
def by_default(facts: ConfigFacts) -> Iterator[Sighting]:
    """Sizes are not in the file under any name that its class reads: several, or one by another."""
    if len(facts.defaulted) >= SEVERAL:
        yield Sighting(
            ", ".join(facts.defaulted),
            f"not given: {len(facts.defaulted)} sizes are the defaults of {facts.class_name}",
        )
    if facts.renamed:
        yield Sighting(
            ", ".join(facts.renamed),
            f"read here as sizes, by names that {facts.class_name} ignores",
        )
    for place, class_name, (key, value, taken) in facts.ignored:
        given = all(one.how == "given" for one in taken)
        own = ", ".join(f"{one.name} {one.value} ({one.how})" for one in taken)
        yield Sighting(
            f"{place}: {key}" if place else key,
            f"says {value}, and {class_name} does not read it; it has {own}",
            "note" if given else None,
        )


@rule(
    "H419",
    "unread-nested-config",
    "warning",
    "the total leaves out what it describes: take the parameters from the weights",
)
def nested(facts: ConfigFacts) -> Iterator[Sighting]:
    """The config nests an object with sizes of a model that the total does not count."""
    if facts.unread:
        yield Sighting(", ".join(facts.unread), "holds sizes of layers that are not counted here")


RULES = (by_default, nested)
