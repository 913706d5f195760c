"""Readers that take less than there is."""
