"""Clients of other protocols than SSE, and rivals that serve them, for benchmarks."""
