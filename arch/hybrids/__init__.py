"""Lineages of decoders that keep recurrent or other state beside keys and values."""
