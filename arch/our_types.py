"""Names of the types of our own modelling files: `headcount_bart` is a BART with fewer K/V heads,
`headcount_latent_llama` a Llama that keeps a latent of each token in place of keys and values."""

# What the types of our own modelling files begin with (grouped.py, low_rank.py).
OURS = "headcount_"
LATENT = "headcount_latent_"


def is_ours(model_type: str) -> bool:
    """Whether a modelling file of our own holds the type."""
    return model_type.startswith(OURS)


def is_latent(model_type: str) -> bool:
    """Whether that is the one whose cache holds latents."""
    return model_type.startswith(LATENT)


def is_grouped(model_type: str) -> bool:
    """Whether that is the one of fewer K/V heads."""
    return is_ours(model_type) and not is_latent(model_type)


def base_type(model_type: str) -> str:
    """The type of which a modelling file of our own changes the attention; any other is its own
    base."""
    return model_type.removeprefix(LATENT).removeprefix(OURS)
