"""The table of rules. Codes are stable; docs/findings.md says what each means and what to do."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..report import SEVERITIES, Finding
from . import files, geometry, pickles
from .facts import Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """`check` yields (severity, where, message, hint) for everything it finds."""

    code: str
    name: str
    check: Callable[[Facts], Iterable[Finding]]


RULES = (
    Rule(code="H101", name="kv-heads-mismatch", check=geometry.key_value_heads),
    Rule(code="H102", name="head-dim-mismatch", check=geometry.head_dim),
    Rule(code="H103", name="layers-mismatch", check=geometry.layers),
    Rule(code="H104", name="vocabulary-mismatch", check=geometry.vocabulary),
    Rule(code="H105", name="hidden-size-mismatch", check=geometry.hidden_size),
    Rule(code="H106", name="dtype-mismatch", check=files.dtype),
    Rule(code="H107", name="tied-embeddings", check=files.tied_embeddings),
    Rule(code="H201", name="missing-shard", check=files.missing_shard),
    Rule(code="H202", name="stale-total-size", check=files.total_size),
    Rule(code="H203", name="unexpected-attention-tensor", check=geometry.strangers),
    Rule(code="H309", name="dangerous-pickle", check=pickles.dangerous_pickle),
)


def check(facts: Facts) -> tuple[Finding, ...]:
    """All findings on one checkpoint, errors first, then by code."""
    found = [finding for rule in RULES for finding in rule.check(facts)]
    return tuple(sorted(found, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.where)))
