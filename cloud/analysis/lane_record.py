"""Where a lane stands: written to `ew.lanes` in the transaction that holds its batch's results, read when it starts.

It decides what is new. A batch that it covers was emitted, whatever Spark's own checkpoint says; and a checkpoint that it does not know
(somebody deleted it) begins to count revisions after the ones that were given, so that the highest revision stays the truth.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class LaneRecord(BaseModel):
    """The last committed batch of a lane (key: stream|lane)."""

    model_config = ConfigDict(frozen=True)

    stream: str
    lane: str
    checkpoint: str
    """Id of the Spark query, which Spark keeps in the checkpoint."""
    base: int
    """Added to the ids of this checkpoint's batches to make revisions."""
    batch: int
    """Last committed batch of this checkpoint; -1 before the first."""
    top: int | None = None
    """Latest event time of the stream so far, ms: a window of a query is final up to `top - lateness`."""
    offsets: dict[int, int] = {}
    """Partition → first offset that was never computed."""
    asked_from: dict[str, dict[int, int]] = {}
    """Query (name@registered_at) → `offsets` when it joined the lane: what is before them was computed without it."""
    late: dict[str, int] = {}
    """Query (name@registered_at) → readings counted as late so far."""

    @property
    def revision(self) -> int:
        """Revision of the last committed batch; -1 before the first."""
        return self.base + self.batch

    @property
    def key(self) -> bytes:
        """The record's key."""
        return f"{self.stream}|{self.lane}".encode()


def begin(record: LaneRecord | None, *, stream: str, lane: str, checkpoint: str) -> LaneRecord:
    """The record to go on from when a lane starts on `checkpoint`."""
    if record is None:
        return LaneRecord(stream=stream, lane=lane, checkpoint=checkpoint, base=0, batch=-1)
    if record.checkpoint == checkpoint:
        return record
    return record.model_copy(update={"checkpoint": checkpoint, "base": record.revision + 1, "batch": -1})


def with_queries(record: LaneRecord, labels: Iterable[str]) -> LaneRecord:
    """The record with exactly these queries: a new one is asked from where the lane stands, one that left is forgotten."""
    return record.model_copy(update={"asked_from": {label: record.asked_from.get(label, record.offsets) for label in labels}})


def is_new(record: LaneRecord, offsets: dict[int, int]) -> bool:
    """Does a batch that ends at `offsets` bring anything that was never computed? False while a lost state is built again."""
    return any(offset > record.offsets.get(partition, -1) for partition, offset in offsets.items())
