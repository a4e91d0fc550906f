"""Why an engine would not start, however much memory there is."""
