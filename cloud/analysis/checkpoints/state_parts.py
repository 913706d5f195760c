"""States that are larger than a record: cut into parts on `ew.windows`, joined when they are read.

Pure: no Kafka.

    key          the state, or `#n` where it has n parts
    key NUL i    part i of n, in bytes

All parts of a state are written in one transaction, so they are of one batch. Parts that a smaller
state has no more are removed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from edgewake.protocol.errors import LocalError

PART_BYTES_MAX: Final = 512 << 10
"""Bytes of a part: half of what a record's value may have, so that its key fits beside it."""
_COUNT: Final = b"#"
"""Begins what stands in the place of a state of several parts; no state, which is JSON, begins
so."""
_BEFORE_NUMBER: Final = "\0"
"""Between key and number. JSON writes it as \\u0000, and names do not have it."""


def joined(rows: Mapping[str, bytes]) -> dict[str, bytes]:
    """The states that these rows hold, in their order.

    Raises LocalError where a part is missing: somebody else removed it.
    """
    found: dict[str, bytes] = {}
    for key, value in rows.items():
        if _BEFORE_NUMBER in key:
            continue
        try:
            found[key] = (
                b"".join(rows[_part(key, i)] for i in range(_parts(value)))
                if value.startswith(_COUNT)
                else value
            )
        except KeyError as error:
            label = key.split("|", 2)[1]
            raise LocalError(
                f"the state {key[:200]!r} lacks a part; rebuild it (on the page of the query, or "
                f"`edgewake query rebuild {label.rpartition('@')[0]}`)"
            ) from error
    return found


class Parts:
    """How many parts each key has, so that those are removed that it has no more."""

    def __init__(self, rows: Mapping[str, bytes]) -> None:
        """`rows`: as they stand."""
        self._of = {
            key.encode(): _parts(value)
            for key, value in rows.items()
            if value.startswith(_COUNT) and _BEFORE_NUMBER not in key
        }

    def cut(self, key: bytes, value: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Cut the text of a state into records; None: the state was removed."""
        size = 0 if value is None else len(value)
        count = -(-size // PART_BYTES_MAX) if size > PART_BYTES_MAX else 0
        before = self._of.pop(key, 0)
        yield key, _COUNT + b"%d" % count if count else value
        for i in range(count):
            assert value is not None
            yield (
                _part(key.decode(), i).encode(),
                value[i * PART_BYTES_MAX : (i + 1) * PART_BYTES_MAX],
            )
        for i in range(count, before):
            yield _part(key.decode(), i).encode(), None
        if count:
            self._of[key] = count


def _parts(value: bytes) -> int:
    return int(value.removeprefix(_COUNT))


def _part(key: str, number: int) -> str:
    return f"{key}{_BEFORE_NUMBER}{number}"
