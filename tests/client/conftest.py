"""The client is tested against real servers, those of the access tests."""

from tests.access.conftest import access_a, access_b, access_directory, cursor_key, feed, new_feed

__all__ = ["access_a", "access_b", "access_directory", "cursor_key", "feed", "new_feed"]
