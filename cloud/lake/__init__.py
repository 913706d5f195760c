"""The lake: readings, results and summaries as Parquet by stream and date, and SQL over it and what
Kafka has after it.
"""
