"""Commands are tested against a running operations API, with what its own tests write."""

from tests.ops.conftest import unique, writer

__all__ = ["unique", "writer"]
