"""The commands, one file each: options, help, the call, and the exit status."""
