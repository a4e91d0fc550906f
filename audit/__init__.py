"""The light half: config and headers -> ModelSpec -> report. No torch, no transformers."""

from .audited import Audit
from .auditing import audit_model

__all__ = ["Audit", "audit_model"]
