"""Files of torch's pickles, whose opcodes are read and not followed."""
