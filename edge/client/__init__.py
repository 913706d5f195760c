"""The client: follows streams over SSE, from its own place, whatever happens to servers and connections in between."""
