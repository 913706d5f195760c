"""Sparkplug B from edge nodes that publish to the broker themselves."""
