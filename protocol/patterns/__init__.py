"""Patterns over readings, the same for chains on devices, queries and alerts."""
