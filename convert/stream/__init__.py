"""Carrying out a plan: tensors are read once, pooled, written once; nothing is decided in here."""
