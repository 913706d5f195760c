"""Edgewake carries measurements from devices to people and programs that may be asleep.

The five packages lie at the top of the repository; links in this folder make them importable as
`edgewake.*`, so that editors, type checkers and Python find the same files. A wheel holds the
files themselves in their place.
"""
