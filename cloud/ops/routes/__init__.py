"""The routes of the operations API, a file for each kind of thing."""
