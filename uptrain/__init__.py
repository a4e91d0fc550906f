"""Healing a converted model: it is trained to predict what the original predicts, then written."""
