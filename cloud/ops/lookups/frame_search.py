"""Finds the frame of a reading by device and number, and the ack token to follow it.

The log of a stream is scanned backwards, at most RECORDS_MAX records of each partition. The newest
frame with the number is the answer.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol import topics
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.ack import AckToken
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.record import ORIGIN_HEADER

RECORDS_MAX: Final = 20_000
"""The most records of one partition that a request scans, the newest ones."""


class FrameFound(BaseModel):
    """The position of a reading's frame."""

    token: str
    """The token for `/v1/acks/{token}`."""
    device: str
    stream: str
    epoch: int | None
    first_seq: int | None
    """The number of the first reading of its frame."""
    readings: int
    is_cut: bool
    """Whether older records were not scanned, which may hold an older frame with this number."""


def find(
    session: KafkaSession, stream: str, device: str, seq: int, epoch: int | None
) -> FrameFound | None:
    """Finds the newest frame of a device with this number, or None. Raises Unavailable."""
    topic, key = topics.stream_topic(stream), device.encode()
    newest: tuple[int, Message, Frame] | None = None
    is_cut = False
    for partition in range(session.partitions(topic)):
        low, high = session.range(topic, partition)
        start = max(low, high - RECORDS_MAX)
        is_cut |= start > low
        try:
            for message in session.read(topic, partition, start, high):
                if message.key() != key:
                    continue
                frame = _frame_with(message, seq, epoch)
                if frame is not None and (newest is None or message.timestamp()[1] >= newest[0]):
                    newest = (message.timestamp()[1], message, frame)
        except DeadlinePassed:
            is_cut = True
    token = None if newest is None else _token(newest[1])
    if newest is None or token is None:
        return None
    frame = newest[2]
    return FrameFound(
        token=str(token),
        device=device,
        stream=stream,
        epoch=frame.epoch,
        first_seq=frame.seq,
        readings=len(frame.t),
        is_cut=is_cut,
    )


def _frame_with(message: Message, seq: int, epoch: int | None) -> Frame | None:
    try:
        frame = records.decode(message.value() or b"").frame
    except (KeyError, ValueError):
        return None
    if frame.seq is None or (epoch is not None and frame.epoch != epoch):
        return None
    return frame if frame.seq <= seq < frame.seq + len(frame.t) else None


def _token(message: Message) -> AckToken | None:
    said = headers_of(message).get(ORIGIN_HEADER, b"")
    try:
        return AckToken.parse(said.decode("ascii").replace(":", "."))
    except (RemoteError, UnicodeDecodeError):
        return None
