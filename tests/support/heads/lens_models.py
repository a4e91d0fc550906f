"""Small models whose weights do not depend on who builds them, and the tokens that they are given.

Imported by the tests and, in another environment, beside TransformerLens: needs torch and
transformers only.
"""

import zlib
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

TOKENS, COPIES = 5, 3  # short enough for a window of six to hold a token and what followed it


def lens_model(config: dict[str, Any]) -> Any:
    """The causal model of a config.json in float32, with eager attention. Weights are a function of
    their names and shapes, and large enough that heads differ."""
    values = dict(config)
    built = CONFIG_MAPPING[values.pop("model_type")].from_dict(values)
    text = built.get_text_config(decoder=True)
    if (getattr(text, "pad_token_id", None) or 0) >= text.vocab_size:
        text.pad_token_id = None
    built._attn_implementation = "eager"
    model: Any = AutoModelForCausalLM.from_config(text, dtype=torch.float32).eval()
    model.set_experts_implementation("eager")  # the same sums in the same order
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or bool((parameter != parameter[0]).any()):  # random sinks, too
                seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                size = 0.05 if parameter.dim() == 3 else 0.3  # experts have three
                parameter.copy_(torch.randn(parameter.shape, generator=seed) * size)
    return model


def lens_tokens() -> torch.Tensor:
    """[2, TOKENS * COPIES]: random tokens that stand there several times."""
    seed = torch.Generator().manual_seed(16)
    rows = [torch.randperm(25, generator=seed)[:TOKENS] + 4 for _ in range(2)]
    return torch.stack(rows).repeat(1, COPIES)
