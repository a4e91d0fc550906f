"""What a model is: its layers and what mixes tokens in them, element types, sizes and errors."""
