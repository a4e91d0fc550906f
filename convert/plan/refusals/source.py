"""What no conversion can start from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headcount.audit import Audit
from headcount.model.errors import HeadcountError, InvalidWeightsError
from headcount.report.report import Finding
from headcount.sources.adapter import Adapter, find_adapter
from headcount.sources.checkpoint import ADAPTER_CONFIG
from headcount.sources.path import refuse_gguf
from headcount.sources.presence import is_there

from ..errors import CannotConvertError


def check_folder(folder: Path) -> None:
    """Raises HeadcountError unless there is a folder with a config."""
    refuse_gguf(folder)
    if not folder.is_dir():
        raise HeadcountError(f"{folder}: not a folder; convert reads a folder with config.json")
    refuse_adapter(find_adapter(folder))
    if not is_there(folder / "config.json", or_its_link=True):
        raise HeadcountError(f"{folder}: no config.json there; convert reads a folder that has one")


def refuse_adapter(adapter: Adapter | None) -> None:
    """Raises CannotConvertError if there is one: what transformers loads is the model with it."""
    if adapter is None:
        return
    if adapter.is_alone:
        raise CannotConvertError(
            f"{adapter.folder}: holds {adapter.words} and no weights of a model: put its two files"
            " into the folder of its base model, and say --merge-adapter"
        )
    raise CannotConvertError(
        f"{adapter.folder / ADAPTER_CONFIG}: {adapter.words} beside the model, which transformers"
        " with peft loads on top: add --merge-adapter to convert both as one model, or move the"
        " adapter's files away to convert the model alone"
    )


def check_source(folder: Path, audit: Audit, config: Mapping[str, Any]) -> None:
    """Raises InvalidWeightsError, and CannotConvertError for weights that are quantised."""
    for check in _CHECKS:
        check(folder, audit, config)


# Names are taken along as they are: who gave them a word in front strips it when loading.
TAKEN_ALONG = frozenset({"H217"})
# A class of another type: what is loaded later goes by the model_type, what was read by the class.
_IN_DOUBT = frozenset({"H422"})


def _errors(folder: Path, audit: Audit, config: Mapping[str, Any]) -> None:
    errors = [finding for finding in audit.findings if _stands_in_the_way(finding)]
    if errors:
        first, more = errors[0], sum(finding.places for finding in errors) - 1
        others = f" (and {more:,} more; `headcount audit` lists them)" if more else ""
        raise InvalidWeightsError(
            f"{folder}: {first.code} {first.where}: {first.message}{others}; {first.hint}"
        )


def _stands_in_the_way(finding: Finding) -> bool:
    if finding.code in _IN_DOUBT:
        return finding.severity == "warning"
    return finding.severity == "error" and finding.code not in TAKEN_ALONG


def _other_format(folder: Path, audit: Audit, config: Mapping[str, Any]) -> None:
    checkpoint = audit.checkpoint
    if checkpoint is None or audit.census is None or checkpoint.format != "safetensors":
        raise InvalidWeightsError(
            f"{folder}: no safetensors weights: convert reads model.safetensors or an index and its"
            " shards (and .bin files with --allow-pickle)"
        )


def _stale_index(folder: Path, audit: Audit, config: Mapping[str, Any]) -> None:
    checkpoint = audit.checkpoint
    assert checkpoint is not None
    if checkpoint.missing:
        raise InvalidWeightsError(
            f"{checkpoint.folder}: missing {', '.join(sorted(checkpoint.missing)[:3])}:"
            " download the shards again"
        )
    if checkpoint.unlisted:
        raise InvalidWeightsError(
            f"{checkpoint.index}: tensor {checkpoint.unlisted[0]!r} is in a shard but not in"
            " weight_map, so it is not clear whether the model has it: repair the index"
        )


def _quantised(folder: Path, audit: Audit, config: Mapping[str, Any]) -> None:
    nested = [value for value in config.values() if isinstance(value, dict)]
    for holder in (config, *nested):
        settings = holder.get("quantization_config") or holder.get("compression_config")
        if settings:
            method = settings.get("quant_method") if isinstance(settings, dict) else None
            raise CannotConvertError(
                f"{folder / 'config.json'}: the weights are quantised"
                f" ({method or 'quantization_config'}): codes cannot be averaged; convert the"
                " original model, then quantise the result"
            )


_CHECKS: tuple[Callable[[Path, Audit, Mapping[str, Any]], None], ...] = (
    *(_errors, _other_format, _stale_index, _quantised),
)
