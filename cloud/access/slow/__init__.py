"""Readers that take less than there is.

What their clients ask to be done is in `policy`, when it is done in `watch`, and how in `treated`.
"""
