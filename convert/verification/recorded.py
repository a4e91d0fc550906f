"""What conversion.json says of the output beside it, where that can be held against anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.sources.json_file import read_json

from ..latent.size import latent_from_document
from ..plan.existing import is_manifest
from ..plan.request import ConversionRequest
from ..plan.side_files import RECORD


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """The record of an output: `manifest` has size and digest of each file, `tensors` the digest of
    each tensor (empty for an output that was trained further), `rewritten` the tensors of the
    source that were merged before they were pooled, and `layers` what was measured of those.
    `request` are the options, None where the record says nothing of them."""

    folder: Path
    manifest: Mapping[str, Mapping[str, Any]]
    tensors: Mapping[str, str]
    rewritten: frozenset[str]
    layers: Mapping[int, Mapping[str, Any]]
    fingerprint: str | None
    inputs: Mapping[str, Mapping[str, Any]]
    request: Mapping[str, Any] | None

    @property
    def is_calibrated(self) -> bool:
        """Whether what was merged depends on a text, which is not kept."""
        return self.request is not None and bool(self.request["calibrated"])

    def request_for(self, source: Path) -> ConversionRequest:
        """What was asked for, of `source`; without the rungs of a calibration, which change the
        values of tensors and nothing else. Raises HeadcountError for options that are none."""
        if self.request is None:
            raise HeadcountError(
                f"{self.folder / RECORD}: does not say with which options this was made from a"
                " source (it was trained further, or made by another version): it can only be held"
                " against the digests of its files, without SOURCE"
            )
        elsewhere = ("calibrated", "calibration_device")  # nothing is run here
        options = {k: v for k, v in self.request.items() if k not in elsewhere}
        if self.is_calibrated:
            rungs = ("method", "grouping", "temperature", "refit", "reconstruct")
            options = {k: v for k, v in options.items() if k not in rungs}
        wanted, pruned = options.get("num_key_value_heads"), options.get("pruned_heads")
        try:
            options["latent"] = latent_from_document(options.get("latent"))
            if isinstance(wanted, dict):
                options["num_key_value_heads"] = {int(layer): n for layer, n in wanted.items()}
            if isinstance(pruned, dict):
                options["pruned_heads"] = {int(layer): tuple(n) for layer, n in pruned.items()}
            return ConversionRequest(source=source, target=self.folder, **options)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged(self.folder, "request") from error


def read_recorded(folder: Path) -> Recorded:
    """The record in `folder`. Raises HeadcountError where there is none that can be used."""
    if not folder.is_dir():
        raise HeadcountError(f"{folder}: not a folder; --verify reads one that convert has written")
    if not (folder / RECORD).exists():
        raise HeadcountError(
            f"{folder}: no {RECORD} there; --verify reads a folder that convert has written"
        )
    record = read_json(folder / RECORD, limits.RECORD_BYTES)
    if "uptraining" in record:  # the rest of the record is about what was trained
        record = {"manifest": record.get("manifest", {})}
    source, digests = (_object(folder, record, key) for key in ("source", "digests"))
    manifest, rewritten = record.get("manifest", {}), digests.get("rewritten", [])
    if (
        not manifest
        or not is_manifest(manifest)
        or any(Path(name).name != name for name in manifest)
    ):
        raise damaged(folder, "manifest")
    tensors = _object(folder, digests, "tensors")
    if not isinstance(rewritten, list) or not all(
        isinstance(name, str) for name in (*tensors.values(), *rewritten)
    ):
        raise damaged(folder, "digests")
    request = record.get("request")
    if (
        request is not None
        and type(_object(folder, record, "request").get("calibrated")) is not bool
    ):
        raise damaged(folder, "request")
    return Recorded(
        folder=folder,
        manifest=manifest,
        tensors=tensors,
        rewritten=frozenset(rewritten),
        layers=_layers(folder, record),
        fingerprint=source.get("fingerprint"),
        inputs=_object(folder, digests, "inputs"),
        request=request,
    )


def _layers(folder: Path, record: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    found = {}
    layers = record.get("layers", [])
    for layer in layers if isinstance(layers, list) else [None]:
        if not isinstance(layer, dict) or type(layer.get("index")) is not int:
            raise damaged(folder, "layers")
        if layer.get("rewritten") is not None:
            found[layer["index"]] = _object(folder, layer, "rewritten")
    return found


def damaged(folder: Path, what: str) -> HeadcountError:
    """That the record is not as we write them."""
    return HeadcountError(
        f"{folder / RECORD}: {what} is not as a conversion writes it: the record was changed, or"
        " written by another version"
    )


def _object(folder: Path, holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under `key`; an empty one if there is nothing."""
    value = holder.get(key, {})
    if not isinstance(value, dict):
        raise damaged(folder, key)
    return value
