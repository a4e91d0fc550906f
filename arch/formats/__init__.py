"""How quantised files store weights: by the config's own words, or by the name of a format."""
