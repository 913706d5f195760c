"""What was read of Kafka and is not yet written, by topic and day, with bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.lake.gather import Gathered, Rows
from edgewake.cloud.lake.sources import Source

ROWS_MAX: Final = 200_000
"""Rows that are gathered before they are written; some 200 bytes each in memory."""
BYTES_MAX: Final = 32 << 20
"""Bytes of records that are gathered before they are written: rows may be wide."""
CELLS_MAX: Final = 16 << 20
"""Values that their tables have, eight bytes each, nulls too: records that have a field of their
own each make a table of nothing."""


@dataclass
class Pending:
    """Rows that wait to be written."""

    rows: int = 0
    _bytes: int = 0
    _of: dict[tuple[str, str], tuple[Source, Gathered]] = field(default_factory=dict)

    def add(
        self,
        source: Source,
        date: str,
        value: bytes,
        *,
        key: bytes | None,
        partition: int,
        offset: int,
    ) -> None:
        """One more record, of that day. Raises Foreign."""
        _, gathered = self._of.setdefault((source.topic, date), (source, Gathered(source.kind)))
        self.rows += gathered.add(value, key=key, partition=partition, offset=offset)
        self._bytes += len(value)

    @property
    def is_full(self) -> bool:
        """Is it time to write?"""
        return (
            self.rows >= ROWS_MAX
            or self._bytes >= BYTES_MAX
            or sum(gathered.cells for _, gathered in self._of.values()) >= CELLS_MAX
        )

    def __iter__(self) -> Iterator[tuple[Source, str, Rows]]:
        """What becomes a file each."""
        for (_, date), (source, gathered) in self._of.items():
            for rows in gathered:
                yield source, date, rows
