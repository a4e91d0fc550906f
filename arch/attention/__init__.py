"""Attention of one layer after another, from a config: shapes, kinds of layers, builders."""
