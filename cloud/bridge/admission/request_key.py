"""The key of a request, by which unnumbered readings count once when it is sent again. Pure.

Two user properties carry it, which an MQTT device may send itself:

    idempotency_key      1 to 200 characters; the sender's name for what it sends
    idempotency_index    number of the reading in the request; ours, where one gives several

The same key with other contents is another request, so a sender that reuses a key loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.record import Discipline, Placement

KEY: Final = "idempotency_key"
INDEX: Final = "idempotency_index"
KEY_CHARS_MAX: Final = 200
"""Characters of a key."""
_INDEX_DIGITS_MAX: Final = 9

Properties = Sequence[tuple[str, str]]


def of_request(key: str, body: bytes) -> str:
    """The key of a whole request, whose readings get numbers. Raises Rejected."""
    return _digest(_checked(key), body)


def numbered(key: str, index: int) -> list[tuple[str, str]]:
    """The properties of one reading of a request. `key`: from `of_request`."""
    return [(KEY, key), (INDEX, str(index))]


def key_in(properties: Properties) -> str | None:
    """The key that a message has; None: none."""
    return next((value for name, value in properties if name == KEY), None)


def placement_of(properties: Properties, stream: str, payload: bytes) -> Placement | None:
    """Where a reading without a number belongs; None: it has no key. Raises Rejected."""
    key = key_in(properties)
    if key is None:
        return None
    index = next((value for name, value in properties if name == INDEX), None)
    if index is None:
        key, number = _digest(_checked(key), payload), 0
    elif index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS_MAX:
        number = int(index)
    else:
        raise Rejected(RejectReason.SHAPE, f"{INDEX} {index[:20]!r}: expected a number")
    state = blake2b(key.encode(), digest_size=8).digest()
    epoch = int.from_bytes(state, "big") >> 1
    return Placement(Discipline.KEYED, stream, epoch, number, number, 0, 1)


def _checked(key: str) -> str:
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise Rejected(
            RejectReason.SHAPE, f"{KEY} of {len(key)} characters: expected 1 to {KEY_CHARS_MAX}"
        )
    return key


def _digest(key: str, body: bytes) -> str:
    return blake2b(key.encode() + b"\0" + body, digest_size=16).hexdigest()
