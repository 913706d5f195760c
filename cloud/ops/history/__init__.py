"""What happened: events, and problems with their beginning and end."""
