"""What a start of vLLM adds to the model: drafts, adapters, experts over ranks."""
