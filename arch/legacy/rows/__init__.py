"""The rows of the family table, by what a model is made of; `..table` puts them together."""
