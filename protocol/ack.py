"""The end-to-end acknowledgement: what the bridge answers after Kafka has a frame on all in-sync replicas.

Sent to the message's response topic with its correlation data unchanged. Payload (JSON):

    {"token":"2.88123"}                                          kept; `token` is the frame's place on `ew.up`: partition.offset
    {"token":"d0.17","rejected":"field_type","detail":"…"}       kept as a dead letter; never send it again

A device frees a frame on either, and on nothing else: an MQTT PUBACK proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from edgewake.protocol.errors import RejectReason, RemoteError


class AckToken(NamedTuple):
    """A frame's place: partition and offset on `ew.up`, or on `ew.dead` when `dead`."""

    partition: int
    offset: int
    dead: bool = False

    def __str__(self) -> str:
        return f"{'d' if self.dead else ''}{self.partition}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> AckToken:
        """Read a token; raises RemoteError."""
        dead = text.startswith("d")
        partition, dot, offset = text[dead:].partition(".")
        if not (dot and partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit() and len(text) <= 32):
            raise RemoteError(f"ack token {text[:40]!r}: expected partition.offset, e.g. 2.88123")
        return cls(int(partition), int(offset), dead)


class Ack(NamedTuple):
    """An acknowledgement, positive (`rejected` is None) or final refusal."""

    token: AckToken
    rejected: RejectReason | None = None
    detail: str = ""

    def encode(self) -> bytes:
        """The payload."""
        if self.rejected is None:
            return f'{{"token":"{self.token}"}}'.encode()
        return orjson.dumps({"token": str(self.token), "rejected": self.rejected.value, "detail": self.detail[:500]})

    @classmethod
    def decode(cls, payload: bytes) -> Ack:
        """Read a payload; raises RemoteError."""
        try:
            body = orjson.loads(payload)
            rejected = body.get("rejected")
            return cls(AckToken.parse(body["token"]), None if rejected is None else RejectReason(rejected), str(body.get("detail", "")))
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteError(f"acknowledgement {payload[:80]!r}: {error}") from error
