"""Makes transformers' auto classes know our classes, so that they load without remote code."""

import transformers

from headcount.arch.model_classes import model_classes
from headcount.arch.our_types import GROUPED, base_type

from . import modeling_headcount


def register(model_type: str) -> None:
    """`headcount_bart`: AutoConfig, AutoModelForSeq2SeqLM and so on load it from now on. Any other
    type is left alone."""
    if not model_type.startswith(GROUPED):
        return
    classes = model_classes(base_type(model_type))
    name = classes.pop("AutoConfig", None)
    if name is None:
        return
    config = getattr(modeling_headcount, f"Grouped{name}")
    transformers.AutoConfig.register(model_type, config, exist_ok=True)
    for auto, name in classes.items():
        model = getattr(modeling_headcount, f"Grouped{name}")
        getattr(transformers, auto).register(config, model, exist_ok=True)
