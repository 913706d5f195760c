"""WebSockets of access servers."""
