"""The audit: a target is found, its config read by its architecture, headers held against it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError, UnsupportedModelError
from headcount.report.report import Finding
from headcount.sources.found import FoundModel
from headcount.sources.json_file import BYTE_ORDER_MARK, read_json
from headcount.sources.target import resolve

from .audited import Audit, counted
from .rules.config_facts import ConfigFacts, config_facts, with_unread
from .rules.config_rules import RULES as CONFIG_RULES
from .rules.declared import OF_BYTES
from .rules.rule import in_order, run

# Warnings that what is audited may be another model than is meant.
DOUBTS = ("H418", "H422")


def audit_model(target: str, config: str | None = None, *, strict: bool = False) -> Audit:
    """Audits `target`; `config` names a config.json for weights that have none beside them.

    Reads config and headers only. Raises HeadcountError; `strict` refuses what would be assumed.
    """
    source = resolve(target, meanwhile=_import_ahead)
    if config is not None:
        if source.gguf is not None:
            raise HeadcountError(f"{target}: a GGUF file holds its own config: leave out --config")
        source = replace(source, config=read_json(Path(config)), where=config, config_file=None)
    audit = audit_source(source)
    if strict and audit.spec.assumed:
        raise UnsupportedModelError(
            f"{source.where}: nothing describes model_type {audit.spec.model_type!r}: without"
            " --strict its config is read by the standard names"
        )
    doubts = (f for f in audit.findings if f.code in DOUBTS and f.severity == "warning")
    doubt = next(doubts, None)
    if strict and doubt is not None:
        raise UnsupportedModelError(
            f"{source.where}: {doubt.where}: {doubt.message} ({doubt.code}): without --strict it"
            " is audited so"
        )
    return audit


def _import_ahead() -> None:
    """Loads what the audit of weights will need, while the Hub is thinking: importing takes longer
    than an answer."""

    import tabulate  # noqa: F401

    import headcount.report.formats  # noqa: F401

    from . import against_weights, audit_report, weights_report  # noqa: F401


def audit_source(source: FoundModel) -> Audit:
    """Audits a model that was found already. Raises HeadcountError."""
    if source.gguf is not None and source.checkpoint is not None:
        from .gguf_audit import audit_gguf

        return audit_gguf(source, source.gguf, source.checkpoint)
    if source.config is None:
        if source.checkpoint is not None and source.checkpoint.suspects:
            file, names = next(iter(source.checkpoint.suspects.items()))
            raise HeadcountError(
                f"{source.id}: {file} imports {', '.join(names[:3])[:200]}: loading it may run any"
                " program (H309); and no config.json lies beside it"
            )
        raise HeadcountError(
            f"{source.id}: no config.json beside the weights, and shapes alone do not tell heads"
            " apart: name one with --config FILE"
        )
    reading = read_config(source.config, source.where)
    facts = config_facts(
        reading, source.config, source.where, source.id, marked=tuple(_marked(source))
    )
    if source.checkpoint is not None:
        from .against_weights import hold_against_weights

        audit = hold_against_weights(source, reading, source.checkpoint, facts)
    else:
        audit = Audit(
            source=source,
            spec=counted(reading, source),
            architecture=reading.architecture,
            census=None,
            stored={},
            findings=(),
        )
    facts = facts._replace(stored=audit.spec)
    if audit.spec.parameters_source == "config":
        facts = with_unread(facts, reading)
    return replace(
        audit,
        active_parameters=_active(audit.spec.parameters, reading.idle_parameters()),
        findings=in_order(
            (*audit.findings, *run((*CONFIG_RULES, *OF_BYTES), facts), *_of_folder(source, facts))
        ),
    )


def _marked(source: FoundModel) -> Iterator[str]:
    """The JSON files of a model that begin with a byte-order mark."""
    index = None if source.checkpoint is None else source.checkpoint.index_file
    for file in (source.config_file, index):
        if file is not None and file.start.startswith(BYTE_ORDER_MARK):
            yield file.path.name


def _active(total: int | None, idle: int | None) -> int | None:
    """What a token visits; None where that is not known, or where the weights are not those of the
    experts that the config describes."""
    return None if total is None or idle is None or idle >= total else total - idle


def _of_folder(source: FoundModel, config: ConfigFacts) -> tuple[Finding, ...]:
    """Findings on what lies in a model's folder; none for a model that is no folder."""
    if source.kind != "folder":
        return ()
    from headcount.sources.side_files import read_side_files

    from .rules import folder, tokens

    checkpoint = source.checkpoint
    used = {file.path.name for file in checkpoint.files} if checkpoint else set()
    if checkpoint is not None and checkpoint.index is not None:
        used |= {checkpoint.index.name, *checkpoint.missing}
    facts = folder.FolderFacts(
        files=read_side_files(Path(source.id)), config=config, used=frozenset(used)
    )
    return run((*folder.RULES, *tokens.RULES), facts)
