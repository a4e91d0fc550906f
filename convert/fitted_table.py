"""What fitting to text did to each layer, as a table: what every step found, and what it left."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headcount.model.units import format_indices
from headcount.report.report import Column, Table

from .conversion import ConversionReport

_Find = Callable[[Mapping[str, Any]], float | None]


def fitted_tables(report: ConversionReport) -> Iterator[Table]:
    """One table, with the columns that have a value; none where nothing was fitted."""
    layers = [
        (layer["index"], found) for layer in report.record["layers"] if (found := _found(layer))
    ]
    tried = ((column, [find(found) for _, found in layers]) for column, find in _COLUMNS)
    columns = [(c, values) for c, values in tried if any(v is not None for v in values)]
    if columns:
        yield Table(
            key="fitted",
            title="Fitted to text",
            columns=(Column(key="layer", title="Layer", unit="count"), *(c for c, _ in columns)),
            rows=tuple(
                (index, *(values[row] for _, values in columns))
                for row, (index, _) in enumerate(layers)
            ),
        )


def fitted_notes(report: ConversionReport) -> Iterator[str]:
    """What the table means, and what was asked for and could not be fitted."""
    shown = {column.key for table in fitted_tables(report) for column in table.columns}
    if not shown:
        return
    said = (words for keys, words in _MEANING if keys & shown)
    yield (
        "Fitted to text: roots of squared errors, relative, on text that was held out."
        f" {' '.join(said)}"
    )
    layers = [(layer["index"], _found(layer)) for layer in report.record["layers"]]
    without = [index for index, found in layers if found.get("mlp_error", found) is None]
    if without:
        yield (
            f"layers {format_indices(without)}: no last projection of a dense MLP was found, so"
            " that only o was refitted"
        )


def _found(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    return (layer["rewritten"] or {}).get("calibration") or {}


def _error(step: str, key: str) -> _Find:
    """In percent."""

    def find(found: Mapping[str, Any]) -> float | None:
        error = (found.get(step) or {}).get(key)
        return None if error is None else 100 * float(error) ** 0.5

    return find


def _divergence(key: str) -> _Find:
    def find(found: Mapping[str, Any]) -> float | None:
        known = (found.get("temperature") or {}).get("divergence")
        return None if known is None else float(known[key])

    return find


_COLUMNS: tuple[tuple[Column, _Find], ...] = (
    (Column(key="scores_before", title="Scores", unit="loss"), _divergence("before")),
    (Column(key="scores_after", title="tempered", unit="loss"), _divergence("after")),
    (Column(key="merged", title="Output before", unit="percent"), _error("output_error", "merged")),
    (Column(key="refit", title="o refitted", unit="percent"), _error("output_error", "refit")),
    (
        Column(key="reconstructed", title="reconstructed", unit="percent"),
        _error("output_error", "reconstructed"),
    ),
    (Column(key="mlp_before", title="Layer before", unit="percent"), _error("mlp_error", "before")),
    (Column(key="mlp_after", title="MLP refitted", unit="percent"), _error("mlp_error", "after")),
)
_MEANING = (
    (
        {"merged", "refit", "reconstructed"},
        "Output: of what the attention should give, before and after each step.",
    ),
    (
        {"mlp_before", "mlp_after"},
        "Layer: of what the layer gives, before and after its MLP was refitted.",
    ),
    (
        {"scores_before", "scores_after"},
        "Scores: KL divergence of the attention weights, before and after the temperature.",
    ),
)
