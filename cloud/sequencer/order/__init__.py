"""Decides which frame passes, waits, or is a repeat or a hole, for one partition of `ew.up`."""
