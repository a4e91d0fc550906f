"""What the package offers to programs: functions with typed arguments, and frozen results."""
