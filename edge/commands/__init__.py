"""What is typed on a device: set up the agent, look at its log, try maps and sources."""
