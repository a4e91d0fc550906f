"""Where a command writes: standard output, and the file that `-o` names."""
