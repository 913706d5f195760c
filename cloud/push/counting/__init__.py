"""Counts what sleeping clients have not seen: each set of streams is read once for all."""
