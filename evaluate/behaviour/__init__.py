"""What a model does with its context: copying, recall, positions, first tokens, whole windows."""
