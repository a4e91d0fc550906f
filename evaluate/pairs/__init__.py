"""Encoder-decoders, measured on pairs: what the encoder reads, and what the decoder should say."""
