"""Sketches: small values that many readings are put into and that merge."""
