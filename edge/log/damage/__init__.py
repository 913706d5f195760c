"""A log that is damaged or had a wrong clock: looked at, salvaged, repaired."""
