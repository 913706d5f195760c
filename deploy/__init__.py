"""Starts the parts: the demo on one machine, and what a machine needs for it."""
