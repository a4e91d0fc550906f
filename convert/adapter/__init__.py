"""An adapter (LoRA) merged into the weights of its model before these are converted."""
