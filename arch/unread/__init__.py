"""Keys that no reader of a config reads: which of them may change what is counted."""
