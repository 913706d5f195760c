"""Chains of processors: pure functions of state and readings, and the shell that runs them."""
