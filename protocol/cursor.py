"""The cursor: a client's exact position in one or several streams. The SSE `id` is the cursor.

Defined once, here: a position is (offset, index): the Kafka offset of the *next* record to read and
the number of its events that were already passed (0 for a fresh record). Everything before a
position was delivered or filtered out; nothing from it on was. A cursor holds a position for
*every* partition of *every* stream of its subscription, so an idle partition is never guessed.

A cursor belongs to streams and not to a subscription: each stream's positions stand beside a hash
of its name and one of its topic's identity in Kafka. So a stream may be added or removed, a filter
may change, and one topic may be created again, and everything else goes on where it was
(`edgewake.cloud.log.resume`).

Text: `v2.` + base64url without padding of

    key id        1 byte    which key signed it
    flags         1 byte    1: its client asked to stop at a gap and was stopped here
    filters       2 bytes BLAKE2b of `where` and `select`; a hint that they changed, nothing hangs
                  on it
    per stream, in the sorted order of their names:
      stream      4 bytes   BLAKE2b of the name
      generation  4 bytes   BLAKE2b of the topic's id in Kafka: a recreated topic is not
                            the old one
      count       varint    partitions
      positions   varints   per partition: 2 × offset, or 2 × offset + 1 and then the index
    tag          10 bytes   keyed BLAKE2b of all before (RFC 7693), so that it cannot be forged

ASCII, one stream of 4 partitions: about 60 characters. Stateless: any server that has the key
resumes it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

from edgewake.protocol import varint
from edgewake.protocol.errors import CursorError

PREFIX: Final = "v2."
PARTITIONS_MAX: Final = 1024
"""Partitions in one subscription, all its streams together: 16 streams of 64. More are refused when
a stream is opened (422), because a cursor travels in a request's header and proxies bound those."""
TEXT_MAX: Final = 14 * 1024
"""The longest cursor that is read, characters: PARTITIONS_MAX positions at offsets below 2^48 and
indexes below 2^21 are shorter."""
KEY_BYTES_MIN: Final = 16
_KEY_BYTES_MAX: Final = 64
"""The longest key, bytes: BLAKE2b takes no more."""
_TAG: Final = 10
_HEAD: Final = 4
_STOP: Final = 1
_HASHES_KEPT: Final = 4096
"""Hashes of names that are cached: each batch of events needs those of its streams."""
_VERSION: Final = re.compile(r"v([0-9]{1,3})\.([A-Za-z0-9_-]+)")

Position: TypeAlias = tuple[int, int]
"""(offset of the next record, events of it already passed)."""


@lru_cache(_HASHES_KEPT)
def stream_hash(name: str) -> bytes:
    """The 4 bytes that identify a stream."""
    return blake2b(name.encode(), digest_size=4).digest()


@lru_cache(_HASHES_KEPT)
def generation_hash(topic_id: str) -> bytes:
    """The 4 bytes that identify a topic in Kafka, whatever its name."""
    return blake2b(topic_id.encode(), digest_size=4).digest()


def filters_hash(where: str | None, select: str | None, more: str = "") -> bytes:
    """The 2 bytes that identify a subscription's filters; `more`: its other restrictions."""
    text = f"{where or ''}\0{select or ''}" + (f"\0{more}" if more else "")
    return blake2b(text.encode(), digest_size=2).digest()


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in one stream: `partitions[p]` is the one in partition p."""

    stream: bytes
    """stream_hash of its name."""
    generation: bytes
    """generation_hash of its topic."""
    partitions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in several streams."""

    streams: tuple[StreamPosition, ...]
    filters: bytes = b"\0\0"
    """filters_hash of the subscription that it was made for."""
    stop: bool = False
    """The client asked for `on_gap=stop` and there was a gap: the position is the one before it."""


@dataclass(frozen=True, slots=True)
class CursorKeys:
    """The keys that sign and verify: `secrets` by key id (0-255), at least 16 bytes each.

    Key `signing` signs, all verify.
    """

    secrets: Mapping[int, bytes]
    signing: int

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not all(
            len(secret) >= KEY_BYTES_MIN and 0 <= kid <= 255 for kid, secret in self.secrets.items()
        ):
            raise ValueError(
                f"cursor keys: expected ids 0-255 and {KEY_BYTES_MIN} bytes or more each"
            )
        if self.signing not in self.secrets:
            raise ValueError(f"cursor keys: the signing key {self.signing} is not among them")

    def tag(self, kid: int, signed: bytes) -> bytes:
        """The tag of `signed` by key `kid`."""
        return blake2b(signed, key=self.secrets[kid][:_KEY_BYTES_MAX], digest_size=_TAG).digest()


class CursorCodec:
    """Writes and reads cursors.

    `keys` may be replaced while it is in use: rotation needs no restart.
    """

    def __init__(self, keys: CursorKeys) -> None:
        self.keys = keys

    def encode(self, cursor: Cursor) -> str:
        """The text of a cursor."""
        return CursorWriter(self, cursor).text().decode()

    def decode(self, text: str) -> Cursor:
        """Read and verify a cursor.

        Raises CursorError: `garbage` is what no server of any version wrote, `unverifiable` what
        may well be a cursor but cannot be trusted here: its key is not known (any more), its tag is
        wrong, or another version wrote it.
        """
        shape = _VERSION.fullmatch(text) if len(text) <= TEXT_MAX else None
        if shape is None:
            raise CursorError(
                "garbage", f"cursor {text[:40]!r}: expected {PREFIX}… as sent in an event's id"
            )
        version, encoded = shape.groups()
        body = _bytes_of(encoded)
        if version != "2":
            raise CursorError(
                "unverifiable", f"cursor of version {version}: this server reads version 2"
            )
        if len(body) < _HEAD + _TAG:
            raise CursorError("garbage", "cursor is too short")
        signed, tag = body[:-_TAG], body[-_TAG:]
        kid = signed[0]
        if kid not in self.keys.secrets or not hmac.compare_digest(self.keys.tag(kid, signed), tag):
            raise CursorError("unverifiable", "cursor was not signed by a known key")
        return _read(signed)


def stream_hashes(text: str) -> frozenset[bytes] | None:
    """The streams (stream_hash) of a cursor, read without a key and so not to be trusted.

    None where it is of another version or not a cursor.
    """
    if not text.startswith(PREFIX):
        return None
    try:
        return frozenset(
            entry.stream for entry in _read(_bytes_of(text.removeprefix(PREFIX))[:-_TAG]).streams
        )
    except (CursorError, IndexError):
        return None


class CursorWriter:
    """Writes a subscription's cursors one after another, encoding only the partition that moved.

    A hub does this per event.
    """

    def __init__(self, codec: CursorCodec, cursor: Cursor) -> None:
        self._keys = codec.keys
        self._heads = [_stream_head(stream) for stream in cursor.streams]
        self._heads[:1] = [
            _head(cursor, self._keys.signing) + head for head in self._heads[:1]
        ] or [_head(cursor, self._keys.signing)]
        self._positions = [
            [_encoded(position) for position in stream.partitions] for stream in cursor.streams
        ] or [[]]

    def move(self, stream: int, partition: int, position: Position) -> None:
        """Note a partition's new position."""
        self._positions[stream][partition] = _encoded(position)

    def text(self) -> bytes:
        """The cursor as it is now; the same characters as CursorCodec.encode gives."""
        parts = []
        for head, positions in zip(self._heads, self._positions, strict=True):
            parts.append(head)
            parts += positions
        signed = b"".join(parts)
        return b"v2." + base64.urlsafe_b64encode(
            signed + self._keys.tag(self._keys.signing, signed)
        ).rstrip(b"=")


def _head(cursor: Cursor, kid: int) -> bytes:
    return bytes((kid, _STOP if cursor.stop else 0)) + cursor.filters


def _stream_head(stream: StreamPosition) -> bytes:
    return stream.stream + stream.generation + varint.encode(len(stream.partitions))


def _encoded(position: Position) -> bytes:
    offset, index = position
    return (
        varint.encode(offset << 1 | 1) + varint.encode(index)
        if index
        else varint.encode(offset << 1)
    )


def _bytes_of(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CursorError("garbage", "cursor is not base64url") from error


def _read(signed: bytes) -> Cursor:
    """A cursor's verified bytes: ours, so they are well-formed."""
    reader = varint.Reader(signed, _HEAD)
    streams = []
    while not reader.ended:
        stream, generation = reader.bytes(4), reader.bytes(4)
        positions = []
        for _ in range(reader.number()):
            offset = reader.number()
            positions.append((offset >> 1, reader.number() if offset & 1 else 0))
        streams.append(StreamPosition(stream, generation, tuple(positions)))
    return Cursor(tuple(streams), signed[2:4], bool(signed[1] & _STOP))
