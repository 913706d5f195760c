"""Faults of a demonstration: what the supervisor may be asked to do to its parts."""
