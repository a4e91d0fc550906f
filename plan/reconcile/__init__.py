"""A start-up log of an engine, held against what the same start would give by the rules."""
