"""How somebody proved who it is."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The ways there are. Whoever tells of a reader tells one of these."""

    ANONYMOUS = "anonymous"
    KEY = "key"
    TOKEN = "token"  # noqa: S105  (the word)
    LOGIN = "login"
    """A person, at an identity provider."""
