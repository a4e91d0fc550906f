"""What the page lets people choose among: models, devices, engines, element types."""

from collections.abc import Iterator
from typing import Any

from headcount.arch.registry import architecture_of
from headcount.model.dtypes import CACHE_BITS
from headcount.model.version import __version__
from headcount.plan.devices import all_devices
from headcount.plan.engines.registry import ENGINES, PLAIN, SERVING
from headcount.report.cells import cell
from headcount.sources.catalogue import CatalogueRow, catalogue

# What weights are most often loaded as, of all that --dtype takes.
_DTYPES = (
    *("bf16", "fp16", "fp8", "int8", "awq", "gptq", "mxfp4", "nvfp4"),
    *("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"),
)


def choices() -> dict[str, Any]:
    """Values of JSON, by what is chosen."""
    return {
        "version": __version__,
        "models": [model for row in catalogue() for model in _models(row)],
        "devices": [
            {"key": device.key, "name": device.name, "vendor": device.vendor}
            for device in all_devices()
        ],
        "engines": [name for name in ENGINES if name != PLAIN],
        "serving": SERVING,  # where one is needed and none is chosen
        "dtypes": _DTYPES,
        "cache_dtypes": [*CACHE_BITS],
    }


def _models(row: CatalogueRow) -> Iterator[dict[str, object]]:
    """The model, and those that its config describes, too."""
    if row.model_type is None or architecture_of(row.model_type) is None:
        return
    parameters = cell(row.parameters, "parameters")
    yield {
        "name": (*row.aliases, row.id)[0],
        "names": row.names[: 1 + len(row.aliases)],
        "type": row.model_type,
        "parameters": parameters,
    }
    for name in row.checkpoints:
        yield {"name": name, "names": [name], "type": row.model_type, "parameters": parameters}
