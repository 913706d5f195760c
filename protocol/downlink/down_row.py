"""A row of `ew.down`: what a device is to do or to be, who asked, and how it ended.

Key `<device>|<id>`.

The operations API writes it before anything is sent, and again with the device's answer; the
bridges send what waits.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from edgewake.protocol.downlink.down_message import AnyMessage, decode
from edgewake.protocol.downlink.downlink import Answer, DownKind

OPEN_MAX: Final = 100
"""The most rows of one device that wait for its answer; one more is refused."""
OPEN_BY_GATEWAY_MAX: Final = 300
"""Rows that wait for answers by one gateway, of all things behind it; below the messages that a
device remembers as done, so that none is done twice. Commands beyond are refused, replies wait."""
ENDED_MAX: Final = 20
"""The most ended rows of one device that are kept; another one replaces the oldest."""


class DownRow(BaseModel):
    """One message to one device."""

    model_config = ConfigDict(frozen=True)

    device: str
    kind: DownKind
    payload: str
    """The whole message: see `edgewake.protocol.downlink.downlink`."""
    asked_at: int
    """When it was asked for, by the cloud's clock, ms since 1970 UTC."""
    expires_at: int
    """The time until which it is sent."""
    via: str = ""
    """The gateway that it is sent to, of a thing behind one: the one that spoke for it last when it
    was asked. It stays with that one, for nobody knows how far it came there."""
    asked_by: str
    """Name of the key that it was asked with."""
    answer: Answer | None = None
    answered_at: int | None = None
    """When the bridge had the answer, ms since 1970 UTC."""

    @property
    def sent_to(self) -> str:
        """The device that gets it from the broker."""
        return self.via or self.device

    @property
    def message(self) -> AnyMessage:
        """The message. Raises Rejected."""
        return decode(self.kind, self.payload.encode())

    def waits_at(self, now_ms: int) -> bool:
        """Is it still to be sent?"""
        return self.answer is None and now_ms < self.expires_at


def key_of(device: str, message_id: str) -> str:
    """The row's key."""
    return f"{device}|{message_id}"
