"""Reads the clauses of a query file and says what is wrong with them."""
