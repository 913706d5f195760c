"""Closed windows computed once more from the log, and previews of queries."""
