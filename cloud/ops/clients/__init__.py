"""Routes that list the clients of access servers and end their streams."""
