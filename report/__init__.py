"""Renderers: one report, many formats. Units are chosen here and nowhere else."""

from .formats import FORMATS, render

__all__ = ["FORMATS", "render"]
