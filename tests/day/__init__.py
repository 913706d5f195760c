"""A day of three hundred mixed devices in ten minutes, and an oracle that counts it."""
