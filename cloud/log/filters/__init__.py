"""Filters of readers: text becomes a checked condition with a price, and a test of events."""
