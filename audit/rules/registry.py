"""All rules, by what they read. docs/findings.md says what each code means and what to do."""

from typing import Any

from headcount.model.errors import HeadcountError
from headcount.report.report import Report

from . import (
    config_rules,
    content,
    declared,
    drafts,
    elements,
    files,
    folder,
    geometry,
    scanned,
    tokens,
    verified,
)
from .rule import Rule

# What the rules of each table read, in the words of `headcount rules`.
BY_READING: dict[str, tuple[Rule[Any], ...]] = {
    "config": (*config_rules.RULES, *declared.OF_BYTES),
    "folder": (*folder.RULES, *tokens.RULES),
    "headers": (
        *geometry.RULES,
        *content.RULES,
        *content.LAST,
        *drafts.OWN,
        *files.RULES,
        *elements.RULES,
    ),
    "weights (--scan)": scanned.RULES,
    "transformers (--verify)": verified.RULES,
}
RULES: tuple[Rule[Any], ...] = tuple(
    sorted((rule for rules in BY_READING.values() for rule in rules), key=lambda rule: rule.code)
)


def choose(report: Report, select: tuple[str, ...], ignore: tuple[str, ...]) -> Report:
    """`report` with those findings whose code begins with one of `select` (empty: all) and with
    none of `ignore`; options may be repeated, or hold several codes with commas.

    Raises HeadcountError for a prefix that no code has.
    """
    wanted, unwanted = _prefixes(select), _prefixes(ignore)
    kept = tuple(
        finding
        for finding in report.findings
        if (not wanted or finding.code.startswith(wanted))
        and not (unwanted and finding.code.startswith(unwanted))
    )
    document = dict(report.document)
    if "findings" in document:
        document["findings"] = [finding.document() for finding in kept]
    return report._replace(findings=kept, document=document)


def _prefixes(texts: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(word.strip().upper() for text in texts for word in text.split(","))
    for prefix in found:
        if not prefix or not any(rule.code.startswith(prefix) for rule in RULES):
            raise HeadcountError(
                f"{prefix!r} is no code or beginning of a code of a rule; `headcount rules` lists"
                " them"
            )
    return found
