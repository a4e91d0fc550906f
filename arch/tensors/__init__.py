"""Names of attention tensors on disk, where a tensor belongs, and which lists are which stack."""
