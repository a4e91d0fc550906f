"""vLLM: its memory budget, its blocks and how it is started, by version."""
