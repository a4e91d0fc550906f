"""Lineages of decoders whose layers attend, one file each."""
