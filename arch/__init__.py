"""What each `model_type` is: one row of a table, and the reading of a config through it."""
