"""Reports that a client with a lease reads: records of `ew.reads` (key: lease id).

Access servers send them to the push proxies.

An access server writes one when a stream is opened with a lease, and again every REPEAT_S as long
as it is open; nothing is written at the end. A client names its lease as `ID.TOKEN`, in the header
`Edgewake-Lease` or the parameter `lease` of the stream's address.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Final

import orjson

REPEAT_S: Final = 60.0
"""Seconds between two records of one open stream; a proxy holds the news good for two and a half
times as long."""
_NAME: Final = re.compile(r"([0-9a-f]{24})\.([0-9a-f]{48})")


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """A report that a client reads with its lease."""

    token_hash: str
    """SHA-256 of the lease's token: proof that the client may speak for the lease, worthless to who
    reads it here."""
    at: int
    """The time of the report, ms since 1970 UTC."""
    streams: tuple[str, ...] = ()
    """The streams that it reads, sorted."""
    cursor: str | None = None
    """The cursor with which it resumed; only in the first record of a stream."""


def hash_token(token: str) -> str:
    """The hash of a lease's token, which alone is stored."""
    return sha256(token.encode()).hexdigest()


def parse_name(text: str) -> tuple[str, str] | None:
    """(lease id, token's hash) of `ID.TOKEN`; None where it is not one."""
    found = _NAME.fullmatch(text.strip())
    return None if found is None else (found[1], hash_token(found[2]))


def encode(read: LeaseRead) -> bytes:
    """The record."""
    return orjson.dumps(asdict(read))


def decode(record: bytes) -> LeaseRead:
    """Read a record; raises ValueError."""
    try:
        found = orjson.loads(record)
        return LeaseRead(
            str(found["token_hash"]),
            int(found["at"]),
            tuple(map(str, found["streams"])),
            found["cursor"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a lease's read: {error!r}") from error
