"""The audit: a target is found, its config read through its family, its headers held against it."""

from dataclasses import replace
from pathlib import Path

from .audited import Audit, counted
from .errors import HeadcountError, UnsupportedModelError
from .family.resolve import read_config
from .source.found import Source
from .source.json_file import read_json
from .source.target import resolve


def audit_model(target: str, config: str | None = None, *, strict: bool = False) -> Audit:
    """Audits `target`; `config` names a config.json for weights that have none beside them.

    Reads config and headers only. Raises HeadcountError; `strict` refuses what would be assumed.
    """
    source = resolve(target)
    if config is not None:
        source = replace(source, config=read_json(Path(config)), where=config)
    audit = audit_source(source)
    if strict and audit.spec.assumed:
        raise UnsupportedModelError(
            f"{source.where}: nothing describes model_type {audit.spec.model_type!r}: without"
            " --strict its config is read by the standard names"
        )
    return audit


def audit_source(source: Source) -> Audit:
    """Audits a model that was found already. Raises HeadcountError."""
    if source.config is None:
        raise HeadcountError(
            f"{source.id}: no config.json beside the weights, and shapes alone do not tell heads"
            " apart: name one with --config FILE"
        )
    reading = read_config(source.config, source.where)
    if source.checkpoint is not None:
        from .against_weights import hold_against_weights

        return hold_against_weights(source, reading, source.checkpoint)
    return Audit(
        source=source,
        spec=counted(reading, source),
        family=reading.family,
        census=None,
        stored={},
        findings=(),
    )
