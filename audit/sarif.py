"""Findings as SARIF 2.1.0 (OASIS), the format in which code hosts and editors take them."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headcount.model.redaction import redacted
from headcount.model.sizes import AuditRequest
from headcount.model.version import __version__
from headcount.report.report import Finding, Report
from headcount.sources.found import FoundModel

from .audited import Audit
from .rules.registry import RULES
from .rules.rule import Rule
from .several import Look

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT = "SRCROOT"


class SeenSources:
    """A look at audits that remembers what was audited, in order."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.found: list[FoundModel] = []

    def __call__(self, audit: Audit, request: AuditRequest) -> Report:
        report = self._look(audit, request)
        self.found.append(audit.source)
        return report


def sarif(reports: Sequence[Report], sources: Iterable[FoundModel]) -> str:
    """One run with a result for each finding of all reports; `sources` are those of the reports of
    audits. A model that could not be audited is a notification of the run, which then was not
    successful."""
    rest = iter(sources)
    sources_of = [None if "error" in report.document else next(rest) for report in reports]
    pairs = list(zip(sources_of, reports, strict=True))
    found = [(source, finding) for source, report in pairs for finding in report.findings]
    used = {finding.code for _, finding in found}
    rules = [rule for rule in RULES if rule.code in used]
    numbers = {rule.code: number for number, rule in enumerate(rules)}
    failed = [report for source, report in pairs if source is None]
    run = {
        "tool": {
            "driver": {
                "name": "headcount",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not failed,
                "toolExecutionNotifications": [_notification(report) for report in failed],
            }
        ],
        "originalUriBaseIds": {_ROOT: {"uri": f"{Path.cwd().as_uri()}/"}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(source, finding, numbers) for source, finding in found],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def _rule(rule: Rule[Any]) -> dict[str, object]:
    says = (rule.check.__doc__ or rule.name).strip()
    place = f"docs/findings.md#{rule.code.lower()}-{rule.name}"
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": says},
        "help": {"text": f"{rule.hint} ({place})", "markdown": f"{rule.hint} (`{place}`)"},
        "defaultConfiguration": {"level": rule.severity},
    }


def _notification(report: Report) -> dict[str, object]:
    text = f"{report.title}: {' '.join(report.notes)}"
    return {"level": "error", "message": {"text": text}}


def _result(
    source: FoundModel | None, finding: Finding, numbers: Mapping[str, int]
) -> dict[str, object]:
    location: dict[str, object] = {
        "logicalLocations": [{"fullyQualifiedName": finding.where}],
    }
    place = None if source is None else _place(source, finding.where)
    if place is not None:
        location["physicalLocation"] = place
    about = "" if source is None else f"{redacted(source.id)}: "
    text = f"{about}{finding.where}: {finding.message}; {finding.hint}"
    return {
        "ruleId": finding.code,
        "ruleIndex": numbers[finding.code],
        "level": finding.severity,
        "message": {"text": text},
        "locations": [location],
    }


def _place(source: FoundModel, where: str) -> dict[str, object] | None:
    """The file that a finding is of, and its line in a config; None for a model that is no file
    here."""
    if source.kind in ("catalogue", "hub"):
        return None
    file = _file(source, where)
    place: dict[str, object] = {"artifactLocation": _artifact(file)}
    config = source.config_file
    if config is not None and config.path == file:
        place["region"] = {"startLine": _line(config.start, where)}
    return place


def _file(source: FoundModel, where: str) -> Path:
    """The file beside the weights that `where` begins with, the file of the tensor that it names,
    or else the config."""
    checkpoint = source.checkpoint
    config = source.config_file
    if checkpoint is not None:
        tensor = checkpoint.tensors.get(where)
        if tensor is not None:
            return checkpoint.folder / tensor.file
    folder = Path(source.id) if source.kind == "folder" else Path(source.id).parent
    for name in _names(where):
        if (folder / name).is_file():
            return folder / name
    if config is not None:
        return config.path
    if checkpoint is not None and source.kind != "folder":
        return checkpoint.files[0].path
    return folder / "config.json" if source.kind == "folder" else Path(source.id)


def _names(where: str) -> Iterator[str]:
    """What may be the name of a file of the folder itself."""
    for word in (where, *where.split()):
        name = word.strip(" ,:;'\"")
        if name and name not in (".", "..") and not {"/", "\\", "\0"} & {*name}:
            yield name[:255]


def _line(text: bytes, where: str) -> int:
    """Where the last key of `where` that stands in the config's text does so first; else line 1."""
    for key in reversed(where.replace(" ", ".").split(".")):
        at = text.find(f'"{key}"'.encode(errors="replace")) if key else -1
        if at >= 0:
            return text.count(b"\n", 0, at) + 1
    return 1


def _artifact(file: Path) -> dict[str, object]:
    """Relative to the current folder, as code hosts want it, where it lies there."""
    whole = Path(os.path.normpath(Path.cwd() / file))
    here = Path.cwd()
    if whole.is_relative_to(here):
        relative = quote(os.fsencode(whole.relative_to(here).as_posix()))
        return {"uri": relative, "uriBaseId": _ROOT}
    return {"uri": whole.as_uri()}
