"""The processors, a file for each kind."""
