"""Finds devices, streams, queries, boards and rules by a part of their names."""
