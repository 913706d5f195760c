"""The three end-to-end answers that a bridge gives to a device.

Sent to the message's response topic with its correlation data unchanged. Payload (JSON):

    {"token":"2.88123"}                                          kept: Kafka has it on all in-sync replicas at partition.offset of `ew.up`
    {"token":"d0.17","rejected":"field_type","detail":"…"}       refused: Kafka has it as a dead letter; never send it again
    {"later":"field_type","retry_after_ms":30000,"detail":"…"}   not now: the cloud keeps nothing of it; send it again after that time

A device frees a frame on the first two, and on nothing else: an MQTT PUBACK proves nothing. On `later` it keeps the frame, waits
with its stream, and goes on with the others.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import orjson

from edgewake.protocol.errors import RejectReason, RemoteError

DETAIL_CHARS_MAX: Final = 500
"""Characters of an explanation; the rest is cut off."""


TOKEN_PATTERN: Final = r"^d?[0-9]{1,10}\.[0-9]{1,19}$"  # noqa: S105  (no password)
"""A token as text; both numbers are Kafka's, of 32 and of 64 bits."""


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
        if re.fullmatch(TOKEN_PATTERN, text, re.ASCII) is None:
            raise RemoteError(f"ack token {text[:40]!r}: expected partition.offset, e.g. 2.88123")
        dead = text.startswith("d")
        partition, _, offset = text[dead:].partition(".")
        return cls(int(partition), int(offset), dead)


class LaterReason(StrEnum):
    """Why a frame is not accepted now (the label of the metric, so a closed list)."""

    FIELD_TYPE = "field_type"  # a field has another type than the one first seen, and no operator has decided which is right
    QUOTA = "quota"  # new streams come faster than topics are made, or a device sends more than its share
    BUSY = "busy"  # the cloud is behind and accepts nothing that it could not keep


RETRY_AFTER_MS_MAX: Final = 3_600_000
"""Milliseconds that a `later` may ask a device to wait; a longer wait is shortened to it, so that a mistake heals within an hour."""


class Later(NamedTuple):
    """Not now: nothing is kept and nothing is freed; the device sends the frame again after `retry_after_ms`."""

    reason: LaterReason
    retry_after_ms: int
    detail: str = ""

    def encode(self) -> bytes:
        """The payload."""
        return orjson.dumps({"later": self.reason.value, "retry_after_ms": self.retry_after_ms, "detail": self.detail[:DETAIL_CHARS_MAX]})


class Ack(NamedTuple):
    """An acknowledgement, positive (`rejected` is None) or final refusal."""

    token: AckToken
    rejected: RejectReason | None = None
    detail: str = ""

    def encode(self) -> bytes:
        """The payload."""
        if self.rejected is None:
            return f'{{"token":"{self.token}"}}'.encode()
        return orjson.dumps({"token": str(self.token), "rejected": self.rejected.value, "detail": self.detail[:DETAIL_CHARS_MAX]})

    @classmethod
    def decode(cls, payload: bytes) -> Ack:
        """Read a payload; raises RemoteError."""
        try:
            body = orjson.loads(payload)
            rejected = body.get("rejected")
            return cls(AckToken.parse(body["token"]), None if rejected is None else RejectReason(rejected), str(body.get("detail", "")))
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteError(f"acknowledgement {payload[:80]!r}: {error}") from error


def decode_answer(payload: bytes) -> Ack | Later:
    """Read any of the three answers; raises RemoteError."""
    try:
        body = orjson.loads(payload)
        if "later" not in body:
            return Ack.decode(payload)
        wait_ms = body["retry_after_ms"]
        if type(wait_ms) is not int or wait_ms < 0:
            raise ValueError(f"retry_after_ms is {wait_ms!r}: expected milliseconds, 0 or more")
        return Later(LaterReason(body["later"]), min(wait_ms, RETRY_AFTER_MS_MAX), str(body.get("detail", "")))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise RemoteError(f"answer {payload[:80]!r}: {error}") from error
