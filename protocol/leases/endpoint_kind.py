"""The kind of an endpoint says what its answers mean."""

from __future__ import annotations

from enum import StrEnum


class EndpointKind(StrEnum):
    """Endpoints differ by what an answer 404 of theirs means."""

    WEBHOOK = "webhook"
    """A deployment that lasts a minute: it is tried again."""
    PUSH_SERVICE = "push_service"
    """The subscription is gone (RFC 8030, 7.3): it ends, as with 410."""
