"""The way up: which frame goes when, what frees it, when it goes again.

`session` decides, `sender` acts.
"""
