"""Several conversions of one model, held against each other: what a smaller cache costs."""
