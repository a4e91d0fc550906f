"""What a model holds outside attention: embeddings, feed-forward, norms, heads, towers."""
