"""The interface of a message, whatever brought it: MQTT's own packet has it, and so has HTTP's.

It is a protocol of attributes rather than a class, so that no message is copied on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Envelope(Protocol):
    """A message on its way in."""

    @property
    def topic(self) -> str:
        """The address in MQTT's form: `ew/v1/<device>/up/<stream>` or `ew/v1/<device>/status`."""

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
