"""What layers keep beside keys and values: recurrent states and indexers, and who makes them."""
