"""Dead letters: found, read, and given back to their streams."""
