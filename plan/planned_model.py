"""The model that is planned: its layers, its config and what its files hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedModel:
    """`weights_bytes` are those of the headers, where they are at hand; `has_experts` is None where
    nothing but the config can tell. One model equals only itself: what is worked out of its layers
    is kept by it."""

    model_id: str
    spec: ModelSpec
    config: Mapping[str, Any] = field(default_factory=dict)
    weights_bytes: int | None = None
    has_experts: bool | None = None
