"""State that the driver keeps itself, for queries that depend on the readings before."""
