"""Which tensors of a checkpoint hold which heads of which attention, and how they lie in them."""
