"""Modelling files of our own: classes that hold what no class of transformers can."""
