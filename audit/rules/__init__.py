"""Rules: what is wrong with a model. Each is a function from typed facts to what it saw."""
