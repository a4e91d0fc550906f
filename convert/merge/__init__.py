"""How the heads of one attention become fewer: pure functions on per-head tensors, no files."""
