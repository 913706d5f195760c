"""Routes about named sets and publications, which operators define for readers."""
