"""Renderers: one report, many formats. Units are chosen here and nowhere else."""

from .formats import ENDINGS, FOR_PEOPLE, FORMATS, render

__all__ = ["ENDINGS", "FORMATS", "FOR_PEOPLE", "render"]
