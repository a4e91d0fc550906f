"""Memory planning: the accelerators, and how weights, KV cache and overhead fit on them."""
