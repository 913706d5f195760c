"""Continuous queries on Spark, and the minute summaries of all streams."""
