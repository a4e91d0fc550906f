"""The light half: config and headers -> ModelSpec -> report. No torch, no transformers.

`headcount.audit(model, ...)` is a function as well; help(headcount.library.audits.audit) shows its
arguments, and docs/library.md the others.
"""

from .audited import Audit
from .auditing import audit_model

__all__ = ["Audit", "audit_model"]
