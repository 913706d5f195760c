"""What brings readings to the agent: the port, its configuration, and a room for each kind."""
