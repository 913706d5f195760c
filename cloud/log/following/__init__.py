"""Readers at the live end: what is shown to many at once is read and encoded once."""
