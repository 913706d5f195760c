"""All routes of the operations API, a file for each kind of thing; the one place of routes."""
