"""Programs of others that parts need: found, fetched or installed, and configured."""
