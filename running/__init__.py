"""Models, tokenizers and texts in memory, through transformers: loaded, built and compared."""
