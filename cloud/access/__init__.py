"""Access: streams and results over HTTP, to any number of readers, each with its own cursor."""
