"""Files: their names last, and they may change while they are in use."""
