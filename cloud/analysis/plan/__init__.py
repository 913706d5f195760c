"""A query as Spark's columns: records, readings, tags, and partial aggregates."""
