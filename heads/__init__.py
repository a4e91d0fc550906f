"""What each head does: attention patterns and circuits of a decoder, as roles. Reads only."""
