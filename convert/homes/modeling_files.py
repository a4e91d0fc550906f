"""The files of ours that lie beside the weights of a model which one of our classes loads."""

from pathlib import Path

from headcount.arch.our_types import is_latent

_MODELS = Path(__file__).parent.parent / "models"
GROUPED_MODULE = "modeling_headcount"
LATENT_MODULE = "modeling_headcount_latent"
_FACTORED_MODULE = "headcount_factored"


def modeling_files(model_type: str) -> tuple[Path, ...]:
    """Those of a type of ours; the one of latents reads the others."""
    latent = (LATENT_MODULE, GROUPED_MODULE, _FACTORED_MODULE)
    modules = latent if is_latent(model_type) else (GROUPED_MODULE,)
    return tuple(_MODELS / f"{module}.py" for module in modules)
