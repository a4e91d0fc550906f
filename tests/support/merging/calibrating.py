"""What the tests do with a source: calibrate it, and run what comes of it in its own class."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from headcount.convert.calibrate.calibrated_layers import calibrated_layers
from headcount.convert.merge.ladder import Ladder
from headcount.convert.plan.heads import HeadsByLayer, heads_of
from headcount.convert.plan.source import read_source
from headcount.convert.rewrite.layer import RewrittenLayer
from headcount.model.decoder_attentions import attentions


def heads_for(folder: Path, after: int, layers: tuple[int, ...] | None = None) -> HeadsByLayer:
    """`after` K/V heads in `layers`, or in all."""
    spec = read_source(folder).audit.spec
    return HeadsByLayer(
        layers={
            where: heads_of(mixer, after)
            for where, mixer in attentions(spec).items()
            if layers is None or where[0] in layers
        }
    )


def calibrate(
    folder: Path,
    text: Path | str,
    ladder: Ladder,
    *,
    after: int = 2,
    tokens: int = 4096,
    layers: tuple[int, ...] | None = None,
    done: Callable[[int], RewrittenLayer | None] = lambda index: None,
) -> list[RewrittenLayer]:
    """All that `calibrated_layers` gives."""
    heads = heads_for(folder, after, layers)
    source = read_source(folder)
    return list(calibrated_layers(source, heads, ladder, str(text), tokens, done, False))


def logits(folder: Path, ids: torch.Tensor, layers: list[RewrittenLayer] | None = None) -> Any:
    """Those of the source's class, with the tensors of `layers` in place of its own."""
    tensors = {name: value for layer in layers or [] for name, value in layer.tensors.items()}
    return with_tensors(folder, tensors)(ids).logits


def with_tensors(folder: Path, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The model, loaded by transformers from files that hold `tensors` instead."""
    state = load_file(folder / "model.safetensors")
    assert not tensors.keys() - state.keys()
    assert all(state[name].shape == value.shape for name, value in tensors.items())
    state |= {name: value.to(state[name].dtype).contiguous() for name, value in tensors.items()}
    config = AutoConfig.from_pretrained(folder)
    model_class = type(AutoModelForCausalLM.from_config(config))
    return model_class.from_pretrained(None, config=config, state_dict=state).eval()
