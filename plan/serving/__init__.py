"""A model on an engine: what is left for its cache, what that serves, and what to change."""
