"""The light half: config and headers -> ModelSpec -> report. No torch, no transformers."""

from .auditing import Audit, audit_model

__all__ = ["Audit", "audit_model"]
