"""Lineages of encoders of text, images and sound."""
