"""A stream as operators see it: how its fields came lately, and how long it is kept."""
