"""The history of events, and of problems with their beginning and end."""
