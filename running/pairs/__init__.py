"""Pairs to run encoder-decoders on: what the encoder reads, and what the decoder should say."""
