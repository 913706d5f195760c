"""Kafka read by cursor, for whoever serves it: knows no HTTP.

Access, push and operations stand on it and never on each other.
"""
