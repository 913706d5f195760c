"""What the broker's PUBACK means for a frame (MQTT 5, section 3.4.2.1). Pure.

None of them frees a frame: only the cloud's acknowledgement does. But a frame that the broker will
never take must not be sent for ever, and a stream that it does not take now must not be sent in a
loop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edgewake.protocol.errors import RejectReason


class Puback(StrEnum):
    """What follows for the frame."""

    RECEIVED = "received"
    """The broker has it. It is sent again when the cloud stays silent; so also if nobody has
    subscribed (0x10): no bridge lives."""
    NOT_NOW = "not_now"
    """The stream waits, longer each time, and its oldest frame alone is tried. A missing right
    (0x87) is among these: the readings are good, and an operator can grant it."""
    NEVER = "never"
    """The broker refuses these bytes or this topic whenever they come."""


REASONS: Final = {
    0x00: (Puback.RECEIVED, "success"),
    0x10: (Puback.RECEIVED, "no matching subscribers"),
    0x80: (Puback.NOT_NOW, "unspecified error"),
    0x83: (Puback.NOT_NOW, "implementation specific error"),
    0x87: (Puback.NOT_NOW, "not authorized"),
    0x90: (Puback.NEVER, "topic name invalid"),
    0x91: (Puback.NOT_NOW, "packet identifier in use"),
    0x97: (Puback.NOT_NOW, "quota exceeded"),
    0x99: (Puback.NEVER, "payload format invalid"),
}
"""Reason code: (meaning, its name in the standard)."""
REJECT_REASONS: Final = {0x90: RejectReason.TOPIC, 0x99: RejectReason.ENCODING}
"""Our reason for those that refuse for ever."""


def meaning(reason: int) -> Puback:
    """What a reason code means; an unknown error means `not now`, an unknown success `received`."""
    known = REASONS.get(reason)
    if known is not None:
        return known[0]
    return Puback.RECEIVED if reason < 0x80 else Puback.NOT_NOW


def name(reason: int) -> str:
    """The name of a reason code, for people."""
    known = REASONS.get(reason)
    return f"0x{reason:02x}" + (f" {known[1]}" if known else "")
