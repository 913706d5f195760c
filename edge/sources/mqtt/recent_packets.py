"""Messages of a broker that were taken lately, so that one that it sends again is not taken again.

Pure; the log keeps it as text.

A broker sends a message of QoS 1 again, marked, with the packet id it had, when it did not hear our
acknowledgement (MQTT 5, section 4.4). A message counts as sent again when it is marked and its id
and content are those of one of the last ones.
"""

from __future__ import annotations

import zlib
from typing import Final

PACKETS_MAX: Final = 50
"""Messages in flight at once, and packet ids remembered: each takes 14 bytes of every commit."""


class RecentPackets:
    """The last PACKETS_MAX."""

    def __init__(self, known: dict[int, int] | None = None) -> None:
        self._known = known or {}

    @classmethod
    def decode(cls, text: str | None) -> RecentPackets:
        """Load what `encode` wrote; None: nothing yet.

        An unreadable text is dropped: a message may come twice, and none is lost.
        """
        pairs = (word.partition(":") for word in (text or "").split())
        try:
            return cls({int(packet_id): int(crc, 16) for packet_id, _, crc in pairs})
        except ValueError:
            return cls()

    def copy(self) -> RecentPackets:
        """One that changes for itself."""
        return RecentPackets(dict(self._known))

    def encode(self) -> str:
        """The packets as the log keeps them."""
        return " ".join(f"{packet_id}:{crc:x}" for packet_id, crc in self._known.items())

    def is_repeat(self, packet_id: int, topic: str, payload: bytes) -> bool:
        """Was this message, which is marked as sent again, taken already?"""
        return self._known.get(packet_id) == _crc(topic, payload)

    def add(self, packet_id: int, topic: str, payload: bytes) -> None:
        """The newest; the oldest goes."""
        self._known.pop(packet_id, None)
        self._known[packet_id] = _crc(topic, payload)
        while len(self._known) > PACKETS_MAX:
            del self._known[next(iter(self._known))]


def _crc(topic: str, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(topic.encode()))
