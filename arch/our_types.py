"""Names of the types of our own modelling file: `headcount_bart` is a BART with fewer K/V heads."""

# What the types of our own modelling file begin with (grouped.py).
GROUPED = "headcount_"


def base_type(model_type: str) -> str:
    """The type that a model of our own modelling file groups; any other is its own base."""
    return model_type.removeprefix(GROUPED)
