"""Lineages of decoders of the first generation: GPT-2, GPT-NeoX, OPT and their kin."""
