"""Is a finished output what its record says, and what its source gives? Nothing is written."""
