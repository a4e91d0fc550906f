"""What each layer alone adds to the loss when its K/V heads become fewer.

The source's own class runs with one layer's heads tied at a time, in memory: that computes what a
conversion of this layer alone would.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from headcount.convert.calibrate.calibrated_layers import calibrated_layers
from headcount.convert.calibrate.layered_model import LayeredModel, assigned
from headcount.convert.calibrate.without_text import layers_without_text
from headcount.convert.homes.finding import find_home
from headcount.convert.merge.ladder import QUALITIES
from headcount.convert.plan.refusals.merging import check_mergeable
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.plan.source import read_source
from headcount.convert.rewrite.layer import RewrittenLayer
from headcount.convert.rewrite.uncalibrated import uncalibrated_layers
from headcount.convert.stream.reader import SourceReader
from headcount.running.boundary import out_of_memory_explained, quiet_transformers
from headcount.running.load import load_model
from headcount.running.placement import check_in_memory, resolve_device
from headcount.running.progress import progress_bar

from ..evaluation_plan import EvaluationPlan, plan_evaluation
from ..evaluation_request import EvaluationRequest
from ..logits import chunk_positions
from ..loss import score_text

MOST_TOKENS = 2048  # a layer; the order of layers shows on few


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSensitivity:
    """`delta_loss`, in nats a token, of layer `index` converted alone; `key_error` and
    `value_error` are the shares of its heads that merging loses."""

    index: int
    delta_loss: float
    key_error: float
    value_error: float

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "index": self.index,
            "delta_loss": self.delta_loss,
            "relative_error": {"k": self.key_error, "v": self.value_error},
        }


def sensitivities(
    request: ConversionRequest, evaluation: Mapping[str, Any], *, progress: bool
) -> tuple[LayerSensitivity, ...]:
    """Of every layer that `request` changes, by the merge that needs no data. Reads only.

    Raises UnsupportedModelError for what is no plain decoder.
    """
    source = read_source(request.source)
    heads = find_home(source, request.num_key_value_heads, request.home).heads
    check_mergeable(source)
    plan = _settled(request, evaluation)
    files = source.checkpoint.files
    with quiet_transformers(), out_of_memory_explained(), SourceReader(files) as reader:
        layered = LayeredModel(source, reader)
        model = load_model(plan.runnables[0], dtype=plan.dtype, place=plan.place).model
        check_in_memory(model, "a look at each layer")
        before = _loss(model, plan)
        ladder = replace(QUALITIES["fast"], seed=request.seed)
        layers = layers_without_text(
            source,
            calibrated_layers(
                *(source, heads, ladder, None, 0, _none_before, False),
                device=resolve_device(request.device),
            ),
            uncalibrated_layers(source, heads, ladder, _none_before),
        )
        count = len({index for (index, _), own in heads.layers.items() if own.is_changed})
        bar = progress_bar(layers, "layer by layer", "layer", shown=progress, total=count)
        return tuple(_sensitivity(model, plan, layered, layer, before) for layer in bar)


def _none_before(index: int) -> None:
    """No layer was made by an earlier run."""


def _settled(request: ConversionRequest, evaluation: Mapping[str, Any]) -> EvaluationPlan:
    asked = EvaluationRequest(
        model=str(request.source),
        **{**evaluation, "speed": False, "behaviour": "none", "roles": False},
    )
    return plan_evaluation(replace(asked, max_tokens=min(asked.max_tokens, MOST_TOKENS)))


def _sensitivity(
    model: PreTrainedModel,
    plan: EvaluationPlan,
    layered: LayeredModel,
    layer: RewrittenLayer,
    before: float,
) -> LayerSensitivity:
    tensors = {layered.inside(name): tensor for name, tensor in layer.tensors.items()}
    with assigned(model, tensors):
        after = _loss(model, plan)
    merged = layer.measured.get("attention", {})
    return LayerSensitivity(
        index=layer.index,
        delta_loss=after - before,
        key_error=merged.get("key_error", 0.0),
        value_error=merged.get("value_error", 0.0),
    )


def _loss(model: PreTrainedModel, plan: EvaluationPlan) -> float:
    ids = torch.tensor(plan.tokens.ids, device=plan.place.inputs)
    chunk = chunk_positions(plan.runnables[0].vocab_size)
    scores = score_text(model, ids, plan.windows, chunk=chunk, bos=plan.tokens.bos)
    return float(scores.losses.mean())
