"""The log's tables in SQLite and the bytes in them, and the sidecar beside the file."""
