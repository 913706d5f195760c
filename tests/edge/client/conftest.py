"""The client is tested against real servers, those of the access tests."""

from tests.access.conftest import access_a, access_b, access_directory, cursor_key

__all__ = ["access_a", "access_b", "access_directory", "cursor_key"]
