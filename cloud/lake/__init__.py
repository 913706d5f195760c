"""The lake: readings and results as Parquet by stream and date, and SQL over it and what Kafka has after it."""
