"""The compact message: the MQTT message of a frame without what the cloud knows anyhow. Pure.

A frame of an agent is always answered, on the device's `…/acks`, with the same correlation data,
and its kind is one of three. So none of that is said. Topic `ew/v1/<device>/up/<stream>` (which may
be a topic alias), content type `ew/2`, no other property, and as payload (varint: base 128, least
first):

    sent_at     varint: the device's clock at this attempt, ms since 1970
    form        1 byte: 0: JSON, 1: JSON as one zstd frame, 2: packed
                (`edgewake.protocol.frames.packed`,
                whose bytes begin with this one)
    epoch       varint, as in the frame
    frame       varint, as in the frame
    …           the frame; of a packed one what follows its own epoch and frame

It means the same as a message with the frame's own content type, the response topic
`ew/v1/<device>/acks`, the correlation data `stream|epoch|frame` and the user property `sent_at`,
and a bridge treats it as that. A frame's bytes are made once; what comes before them is made for
each attempt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgewake.protocol import varint
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import packed
from edgewake.protocol.frames.frame import FRAME_TYPE, FRAME_ZSTD_TYPE

COMPACT_TYPE: Final = "ew/2"
_FORMS: Final = (FRAME_TYPE, FRAME_ZSTD_TYPE, packed.PACKED_TYPE)


class Compact(NamedTuple):
    """The content of a compact message."""

    sent_at: int
    epoch: int
    frame: int
    content_type: str
    """The content type of `body`."""
    body: bytes
    """A frame's bytes."""


def correlation(stream: str, epoch: int, frame: int) -> bytes:
    """Correlation data of a frame: the answer brings it back unchanged."""
    return f"{stream}|{epoch}|{frame}".encode()


def encode(message: Compact) -> bytes:
    """The payload."""
    sent_at = varint.encode(message.sent_at)
    form = _FORMS.index(message.content_type)
    if form == packed.FORM:
        return sent_at + message.body
    return b"%b%c%b%b%b" % (
        sent_at,
        form,
        varint.encode(message.epoch),
        varint.encode(message.frame),
        message.body,
    )


def decode(payload: bytes) -> Compact:
    """Read a payload; its frame is not looked at. Raises Rejected(encoding | version)."""
    reader = varint.Reader(payload, 0)
    try:
        sent_at = reader.number()
        begins = reader.at
        form, epoch, frame = reader.byte(), reader.number(), reader.number()
    except IndexError as error:
        raise Rejected(RejectReason.ENCODING, f"compact message: {error}") from error
    if form >= len(_FORMS):
        raise Rejected(
            RejectReason.VERSION, f"compact message of form {form}: expected 0 to {len(_FORMS) - 1}"
        )
    return Compact(
        sent_at, epoch, frame, _FORMS[form], payload[begins if form == packed.FORM else reader.at :]
    )
