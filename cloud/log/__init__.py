"""Kafka read by cursor, for any server; it knows no HTTP.

Access, push and operations stand on it and never on each other.
"""
