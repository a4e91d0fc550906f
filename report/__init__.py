"""Renderers: one report, many formats. Units are chosen here and nowhere else."""

from .formats import FOR_PEOPLE, FORMATS, render

__all__ = ["FORMATS", "FOR_PEOPLE", "render"]
