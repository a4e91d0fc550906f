"""What a model is worth: loss, divergence from an original, real cache bytes, speed. Reads only."""
