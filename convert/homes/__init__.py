"""Which class holds the result, and what it makes of the source: policies over the map of heads."""
