"""The cursor: a client's exact place in one or several streams. The SSE `id` is the cursor.

Said once, here: a position is (offset, index): the Kafka offset of the *next* record to read and the number of its events that
were already passed (0 for a fresh record). Everything before a position was delivered or filtered out; nothing from it on was.
A cursor holds a position for *every* partition of *every* stream of its subscription, so an idle partition is never guessed.

Text: `v1.` + base64url without padding of

    subscription  4 bytes   BLAKE2b of streams, where and select: a cursor fits its own subscription only
    generation    4 bytes   BLAKE2b of the topics' ids in Kafka: a topic that was made anew is not the old one
    key id        1 byte    which signing key
    positions     varints   per stream in the subscription's sorted order: partition count, then offset, index for each partition
    tag          10 bytes   keyed BLAKE2b of all before (RFC 7693), so that it cannot be forged

ASCII, one stream of 4 partitions: about 65 characters. Stateless: any server with the key resumes it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, TypeAlias

from edgewake.protocol.errors import CursorError

PREFIX: Final = "v1."
TEXT_MAX: Final = 4096
"""Characters of a cursor that is read at all. 16 streams of 16 partitions need about 2500."""
_PREFIX_BYTES: Final = PREFIX.encode()
_TAG: Final = 10
_HEAD: Final = 9

Position: TypeAlias = tuple[int, int]
"""(offset of the next record, events of it already passed)."""


def subscription_hash(streams: Sequence[str], where: str | None, select: str | None) -> bytes:
    """4 bytes that stand for a subscription; the order of streams does not matter."""
    text = "\0".join([*sorted(streams), "\1", where or "", "\1", select or ""])
    return blake2b(text.encode(), digest_size=4).digest()


def generation_hash(topic_ids: Sequence[str]) -> bytes:
    """4 bytes that stand for the topics' identities, in the subscription's sorted order of streams."""
    return blake2b("\0".join(topic_ids).encode(), digest_size=4).digest()


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a subscription. `positions[i][p]` is partition p of the i-th stream in sorted order."""

    subscription: bytes
    generation: bytes
    positions: tuple[tuple[Position, ...], ...]

    def moved(self, stream: int, partition: int, position: Position) -> Cursor:
        """The same cursor with one partition moved."""
        partitions = list(self.positions[stream])
        partitions[partition] = position
        positions = (*self.positions[:stream], tuple(partitions), *self.positions[stream + 1 :])
        return replace(self, positions=positions)


class CursorCodec:
    """Signs and reads cursors. `keys` maps a key id (0-255) to at least 16 secret bytes; the highest id signs."""

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        if not keys or any(len(key) < 16 or not 0 <= kid <= 255 for kid, key in keys.items()):
            raise ValueError("cursor keys: expected at least one, ids 0-255, 16 bytes or more each")
        self._keys = {kid: key[:64] for kid, key in keys.items()}
        self.current = max(keys)

    def encode(self, cursor: Cursor) -> str:
        """The text of a cursor."""
        return CursorWriter(self, cursor).text().decode()

    def sign(self, body: bytes) -> bytes:
        """The text of a cursor's bytes, made with `current`."""
        tagged = body + self._tag(self.current, body)
        return _PREFIX_BYTES + base64.urlsafe_b64encode(tagged).rstrip(b"=")

    def decode(self, text: str) -> Cursor:
        """Read and verify a cursor; raises CursorError(garbage | version | forged)."""
        if not text.startswith("v") or "." not in text or len(text) > TEXT_MAX or not text.isascii():
            raise CursorError("garbage", f"cursor {text[:40]!r}: expected {PREFIX}… as sent in an event's id")
        if not text.startswith(PREFIX):
            raise CursorError("version", f"cursor version {text.partition('.')[0][:10]!r}: expected {PREFIX[:-1]}")
        encoded = text[len(PREFIX) :]
        try:
            body = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise CursorError("garbage", "cursor is not base64url") from error
        if len(body) < _HEAD + _TAG:
            raise CursorError("garbage", "cursor is too short")
        signed, tag = body[:-_TAG], body[-_TAG:]
        kid = signed[8]
        if kid not in self._keys or not hmac.compare_digest(self._tag(kid, signed), tag):
            raise CursorError("forged", "cursor was not signed by this system, or its key was retired")
        return Cursor(signed[:4], signed[4:8], _get_positions(signed, _HEAD))

    def _tag(self, kid: int, signed: bytes) -> bytes:
        return blake2b(signed, key=self._keys[kid], digest_size=_TAG).digest()


def _put_varint(body: bytearray, value: int) -> None:
    while value > 0x7F:
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value)


def _get_positions(body: bytes, at: int) -> tuple[tuple[Position, ...], ...]:
    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    positions = []
    while at < len(body):
        positions.append(tuple((varint(), varint()) for _ in range(varint())))
    return tuple(positions)


class CursorWriter:
    """Writes the cursors of one subscription one after another, changing only the partition that moved: what a hub does per event."""

    def __init__(self, codec: CursorCodec, cursor: Cursor) -> None:
        self._codec = codec
        self._places = [[_place(position) for position in partitions] for partitions in cursor.positions]
        self._counts = [_place_count(len(partitions)) for partitions in cursor.positions]
        self._head = cursor.subscription + cursor.generation + bytes((codec.current,))

    def move(self, stream: int, partition: int, position: Position) -> None:
        """Note a partition's new position."""
        self._places[stream][partition] = _place(position)

    def text(self) -> bytes:
        """The cursor as it is now; the same characters as CursorCodec.encode gives."""
        parts = [self._head]
        for count, places in zip(self._counts, self._places, strict=True):
            parts.append(count)
            parts += places
        return self._codec.sign(b"".join(parts))


def _place(position: Position) -> bytes:
    body = bytearray()
    _put_varint(body, position[0])
    _put_varint(body, position[1])
    return bytes(body)


def _place_count(count: int) -> bytes:
    body = bytearray()
    _put_varint(body, count)
    return bytes(body)
