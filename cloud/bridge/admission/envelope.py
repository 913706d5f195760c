"""What a message is, whatever brought it: MQTT's own packet fits as it is, and so would an HTTP
request.

An attribute protocol rather than a class, so that nothing is copied on the way of every message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Envelope(Protocol):
    """A message on its way in."""

    @property
    def topic(self) -> str:
        """`ew/v1/<device>/up/<stream>` or `ew/v1/<device>/status`, whatever the transport calls its
        address.
        """

    @property
    def payload(self) -> bytes:
        """The body as it came."""

    @property
    def content_type(self) -> str | None:
        """What the payload is; None: plain JSON."""

    @property
    def response_topic(self) -> str | None:
        """Where the device waits for the acknowledgement; None: it waits for none."""

    @property
    def correlation_data(self) -> bytes | None:
        """Returned with the acknowledgement."""

    @property
    def user_properties(self) -> Sequence[tuple[str, str]]:
        """`sent_at`, and whatever else the sender adds."""


@dataclass(frozen=True, slots=True)
class Message:
    """An Envelope of a transport that has no packet of its own."""

    topic: str
    payload: bytes
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: Sequence[tuple[str, str]] = ()
