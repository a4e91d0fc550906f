"""The model that is planned: its layers, its config and what its files hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headcount.arch.formats.by_config import described_inventory
from headcount.arch.modules.module import Inventory
from headcount.model.dtypes import BITS
from headcount.model.spec import ModelSpec

if TYPE_CHECKING:
    from headcount.sources.safetensors import TensorInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedModel:
    """`weights_bytes` are those of the headers, where they are at hand, of which `prediction_bytes`
    are of layers that predict further tokens; `has_experts` is None where nothing but the config
    can tell; `lacking` says what the files do not hold of the model that the
    config describes, and that is planned; `stands_in` that the config is another model's.
    `own_format` is its quantization_config, empty where it has none, where `config` has that of a
    format that was asked for; `overruled` says which count of parameters a given one took the place
    of; `on_hub` that it was read from the Hub, and `revision` which one of it was asked for.
    `counted` says what is counted that the class does not build, and `prediction_parameters` are
    those of layers that it builds and engines leave out. `tensors` are those of a GGUF file, by
    their names; `active_parameters` those that a token visits, None where that is not known. One
    model equals only itself: what is worked out of its layers is kept by it."""

    model_id: str
    spec: ModelSpec
    config: Mapping[str, Any] = field(default_factory=dict)
    weights_bytes: int | None = None
    prediction_bytes: int = 0
    has_experts: bool | None = None
    lacking: str | None = None
    stands_in: str | None = None
    own_format: Mapping[str, Any] | None = None
    overruled: str | None = None
    counted: str | None = None
    prediction_parameters: int = 0
    tensors: "Mapping[str, TensorInfo] | None" = None
    active_parameters: int | None = None
    on_hub: bool = False
    revision: str | None = None


@lru_cache(maxsize=64)
def matrices_of(model: PlannedModel) -> Inventory | None:
    """Every matrix, by the config; None where that does not describe as many parameters."""
    return described_inventory(model.config, model.spec.parameters or 0)


@lru_cache(maxsize=64)
def narrowed(model: PlannedModel) -> PlannedModel:
    """As engines load it that take float32 for bfloat16 (`auto` of vLLM's and SGLang's --dtype,
    _resolve_auto_dtype of vllm/config/model.py); itself where it has 16 bits or fewer."""
    bits = BITS[model.spec.dtype] if model.spec.dtype else 16
    if bits <= 16:
        return model
    stored = model.weights_bytes
    return replace(
        model,
        spec=replace(model.spec, dtype="bfloat16"),
        weights_bytes=None if stored is None else stored * 16 // bits,
        prediction_bytes=model.prediction_bytes * 16 // bits,
    )
