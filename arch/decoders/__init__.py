"""Lineages of decoders whose layers attend, and the multimodal models built on them."""
