"""Encoder-decoders, calibrated on pairs of a source and a target."""
