"""`headcount.diff`: what differs between two models, layer by layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.audit.auditing import audit_model
from headcount.audit.diff import Difference, diff_report
from headcount.model.sizes import AuditRequest

from .result import Result, public
from .values import WORKLOAD, Name, Size, checked, model_name


@dataclass(frozen=True, kw_only=True)
class LayerDifferences:
    """The fields of one layer that differ, by their names."""

    stack: str
    index: int
    fields: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True, eq=False)
class DiffResult(Result):
    """What differs between `a` and `b`: fields of the models by their names, each with its values
    `a` and `b`, and layers. `same`: nothing does. Caches are those of `context` tokens."""

    a: str
    b: str
    same: bool
    context: int
    batch_size: int
    model: Mapping[str, Difference] = field(repr=False)
    layers: tuple[LayerDifferences, ...] = field(repr=False)


@public
def diff(
    a: Name,
    b: Name,
    *,
    context: Size | None = None,
    batch_size: int = 1,
    kv_dtype: str | None = None,
    encoder_tokens: Size | None = None,
) -> DiffResult:
    """Holds the models `a` and `b`, named as for `audit`, against each other: heads, windows,
    parameters and cache bytes. Both caches are sized for `context`, or the smaller of their
    maxima. Raises HeadcountError."""
    workload = {"context": context, "batch_size": batch_size, "kv_dtype": kv_dtype}
    request = AuditRequest(**checked({**workload, "encoder_tokens": encoder_tokens}, WORKLOAD))
    report = diff_report(audit_model(model_name(a)), audit_model(model_name(b)), request)
    document: Mapping[str, Any] = report.document
    first, second = document["models"]
    return DiffResult(
        report=report,
        a=first["id"],
        b=second["id"],
        same=document["same"],
        **document["request"],
        model=_differences(document["model"]),
        layers=tuple(
            LayerDifferences(
                stack=layer["stack"], index=layer["index"], fields=_differences(layer["fields"])
            )
            for layer in document["layers"]
        ),
    )


def _differences(fields: Mapping[str, Mapping[str, object]]) -> dict[str, Difference]:
    return {name: Difference(name=name, **values) for name, values in fields.items()}
