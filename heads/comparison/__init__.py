"""What became of each head: an atlas against that of the model that it was made from."""
