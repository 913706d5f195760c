"""The lake: readings, results and summaries as Parquet, and SQL over it and Kafka."""
