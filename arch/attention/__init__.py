"""The attention of a config's layers: shapes, kinds of layers, and what builds them."""
