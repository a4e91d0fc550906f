"""What each head is worth to the loss on a text."""
