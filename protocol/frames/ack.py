"""The three end-to-end answers that a bridge gives to a device.

Sent to the message's response topic `ew/v1/<device>/ack` with its correlation data unchanged.
Payload (JSON):

    {"token":"2.88123"}                                          kept: Kafka has it on all in-sync
                                                                 replicas at partition.offset of
                                                                 `ew.up`
    {"token":"d0.17","rejected":"field_type","detail":"…"}       refused: Kafka has it as a dead
                                                                 letter; never send it again
    {"later":"field_type","retry_after_ms":30000,"detail":"…"}   not now: the cloud keeps nothing of
                                                                 it; send it again after that time

An answer `kept` also has `"types": {"speed": "number"}` where the message had odd values of fields
(`speed_odd`) whose types an operator has decided, and so has one that refuses a message for values
of another type than was decided: an agent whose first value was another one learns it so.

A device that names `ew/v1/<device>/acks` as its response topic gets what is due to it in one
message, each answer beside its correlation data, which then must be text; a token alone means kept:

    [["speed|7|12","2.88123"],["speed|7|13",{"token":"d0.17","rejected":"field_type","detail":"…"}]]

A device frees a frame on the first two, and on nothing else: an MQTT PUBACK proves nothing. On
`later` it keeps the frame, waits with its stream, and goes on with the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.errors import RejectReason, RemoteError
from edgewake.protocol.frames.field_type import FieldType

DETAIL_CHARS_MAX: Final = 500
"""The longest explanation, characters; the rest is cut off."""


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
    """The reason why a frame is not accepted now (the label of the metric, so a closed list)."""

    # a field of a frame has another type than the one first seen throughout, and no operator has
    # decided which is right
    FIELD_TYPE = "field_type"
    # new streams come faster than topics are made, or a device sends more than its share
    QUOTA = "quota"
    # any other reason: a device reads it for one that is newer than itself; bridges that hold back
    # just read nothing
    BUSY = "busy"


RETRY_AFTER_MS_MAX: Final = 3_600_000
"""The longest wait that a `later` may ask for, ms. A longer one is shortened to it, so that a
mistake heals within an hour."""


class Later(NamedTuple):
    """Not now: the device must send the frame again after `retry_after_ms`.

    Nothing is kept and nothing is freed.
    """

    reason: LaterReason
    retry_after_ms: int
    detail: str = ""

    def encode(self) -> bytes:
        """The payload."""
        return orjson.dumps(
            {
                "later": self.reason.value,
                "retry_after_ms": self.retry_after_ms,
                "detail": self.detail[:DETAIL_CHARS_MAX],
            }
        )


NO_TYPES: Final[Mapping[str, FieldType]] = MappingProxyType({})


class Ack(NamedTuple):
    """An acknowledgement, positive (`rejected` is None) or final refusal."""

    token: AckToken
    rejected: RejectReason | None = None
    detail: str = ""
    types: Mapping[str, FieldType] = NO_TYPES
    """Decided types of fields that had values of others."""

    def encode(self) -> bytes:
        """The payload."""
        if self.rejected is None and self.types:
            return orjson.dumps({"token": str(self.token), "types": self.types})
        if self.rejected is None:
            return f'{{"token":"{self.token}"}}'.encode()
        said = {
            "token": str(self.token),
            "rejected": self.rejected.value,
            "detail": self.detail[:DETAIL_CHARS_MAX],
        }
        return orjson.dumps(said | ({"types": self.types} if self.types else {}))

    @classmethod
    def decode(cls, payload: bytes) -> Ack:
        """Read a payload other than `later`; raises RemoteError."""
        answer = decode_answer(payload)
        if not isinstance(answer, cls):
            raise RemoteError(f"acknowledgement {payload[:80]!r}: expected a token")
        return answer


def decode_answer(payload: bytes) -> Ack | Later:
    """Read any of the three answers; raises RemoteError."""
    try:
        return _answer(orjson.loads(payload))
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteError(f"answer {payload[:80]!r}: {error}") from error


def _answer(body: Any) -> Ack | Later:
    if "later" in body:
        wait_ms = body["retry_after_ms"]
        if type(wait_ms) is not int or wait_ms < 0:
            raise ValueError(f"retry_after_ms is {wait_ms!r}: expected milliseconds, 0 or more")
        return Later(
            _later_reason(body["later"]),
            min(wait_ms, RETRY_AFTER_MS_MAX),
            str(body.get("detail", "")),
        )
    rejected, detail = body.get("rejected"), str(body.get("detail", ""))
    token = AckToken.parse(body["token"])
    types = _types(body.get("types"))
    if rejected is None:
        return Ack(token, None, detail, types)
    try:
        return Ack(token, RejectReason(rejected), detail, types)
    except ValueError:
        # Devices are upgraded last: a reason that we do not know yet refuses as well.
        return Ack(token, RejectReason.UNKNOWN, f"{rejected!s:.64}: {detail}")


def _types(said: Any) -> Mapping[str, FieldType]:
    """Those that we know: devices are upgraded last."""
    if not isinstance(said, dict):
        return NO_TYPES
    known = {kind.value: kind for kind in FieldType}
    return {name: known[kind] for name, kind in said.items() if kind in known}


def _later_reason(text: Any) -> LaterReason:
    try:
        return LaterReason(text)
    except ValueError:
        return LaterReason.BUSY


JOINED_BYTES_MAX: Final = 64 * 1024
"""The largest message of joined answers, bytes, so that a small device can read it; further answers
go into the next message."""


def joined(answers: Iterable[tuple[bytes, Ack | Later]]) -> Iterator[bytes]:
    """Join answers into few payloads, each answer beside its correlation data.

    The correlation data must be JSON text without escapes (`is_joinable`).
    """
    parts: list[bytes] = []
    size = 2
    for correlation, answer in answers:
        is_kept = isinstance(answer, Ack) and answer.rejected is None and not answer.types
        body = b'"%b"' % str(answer.token).encode() if is_kept else answer.encode()  # type: ignore[union-attr]
        part = b'["%b",%b]' % (correlation, body)
        if size + len(part) + 1 > JOINED_BYTES_MAX and parts:
            yield b"[%b]" % b",".join(parts)
            parts, size = [], 2
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield b"[%b]" % b",".join(parts)


_JOINABLE: Final = re.compile(rb"[ !#-\[\]-~]{1,192}")


def is_joinable(correlation: bytes | None) -> bool:
    """May this correlation data stand in a message of joined answers?

    It must be 1 to 192 printable ASCII characters without quote and backslash.
    """
    return correlation is not None and _JOINABLE.fullmatch(correlation) is not None


def decode_joined(payload: bytes) -> list[tuple[bytes, Ack | Later]]:
    """Read a message of joined answers: (correlation data, answer) of each; raises RemoteError."""
    try:
        body = orjson.loads(payload)
        if type(body) is not list:
            raise TypeError("expected a list")
        return [
            (
                correlation.encode(),
                Ack(AckToken.parse(answer)) if isinstance(answer, str) else _answer(answer),
            )
            for correlation, answer in body
        ]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteError(f"joined answers {payload[:80]!r}: {error}") from error
