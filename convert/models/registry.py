"""Makes transformers' auto classes know our classes, so that they load without remote code."""

import transformers

from headcount.arch.model_classes import model_classes, task_classes
from headcount.arch.our_types import base_type, is_latent, is_ours

from . import modeling_headcount, modeling_headcount_latent


def register(model_type: str) -> None:
    """`headcount_bart`: AutoConfig, AutoModelForSeq2SeqLM and so on load it from now on. Any other
    type is left alone."""
    if not is_ours(model_type):
        return
    module = modeling_headcount_latent if is_latent(model_type) else modeling_headcount
    prefix = module.FAMILY.name
    base = base_type(model_type)
    classes = model_classes(base) | task_classes(base)
    name = classes.pop("AutoConfig", None)
    if name is None:
        return
    config = getattr(module, prefix + name)
    transformers.AutoConfig.register(model_type, config, exist_ok=True)
    for auto, name in classes.items():
        model = getattr(module, prefix + name)
        getattr(transformers, auto).register(config, model, exist_ok=True)
