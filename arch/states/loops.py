"""Layers that run several times with the same weights, each run with a cache of its own."""
