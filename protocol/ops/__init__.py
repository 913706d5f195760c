"""Rows of the tables in Kafka that the operations API reads and writes."""
