"""A record's headers."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message


def headers_of(message: Message) -> Mapping[str, bytes]:
    """A record's headers as a dict; the last of equal names wins."""
    return {name: value or b"" for name, value in message.headers() or ()}
