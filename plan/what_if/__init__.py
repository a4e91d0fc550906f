"""What a conversion of the model would change in its plan."""
