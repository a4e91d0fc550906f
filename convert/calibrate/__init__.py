"""Fitting a conversion to text: the source's own classes run one layer at a time."""
