"""The language of continuous queries: read, checked and planned, without Spark.

`terms/` is what a query is made of (functions, expressions, windows); `syntax/` reads each clause;
`query_file.py` reads a whole file into a `Query` (`query.py`), or lists all its faults.
"""
