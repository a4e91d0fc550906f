"""Layers whose tensors get other values before heads are pooled: read, merged, written back."""
