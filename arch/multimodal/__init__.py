"""Lineages of multimodal models around language models of other lineages."""
