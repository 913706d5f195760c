"""A lane, which is one Spark query: its life, its micro-batches, its event time, its failures."""
