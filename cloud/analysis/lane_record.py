"""Where a lane stands: written to `ew.lanes` in the transaction that holds its batch's results, read when it starts.

It decides what is new (batch_commit): what its offsets cover was emitted, whatever Spark's own checkpoint says. Revisions count its
transactions, so they grow whatever becomes of the checkpoint, and the highest revision stays the truth.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, ConfigDict


class LaneRecord(BaseModel):
    """How far a lane has come (key: stream|lane)."""

    model_config = ConfigDict(frozen=True)

    stream: str
    lane: str
    revision: int = -1
    """Of the last transaction with results; -1 before the first."""
    top: int | None = None
    """Latest event time of the stream so far, ms: a window of a query is final up to `top - lateness`."""
    offsets: dict[str, dict[int, int]] = {}
    """Topic → partition → first offset whose results were never emitted."""
    asked_from: dict[str, dict[str, dict[int, int]]] = {}
    """Query (name@registered_at) → `offsets` when it joined the lane: what is before them was computed without it."""
    late: dict[str, int] = {}
    """Query (name@registered_at) → readings counted as late so far."""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return f"{self.stream}|{self.lane}".encode()


def with_queries(record: LaneRecord, labels: Collection[str]) -> LaneRecord:
    """The record with exactly these queries: a new one is asked from where the lane stands, one that left is forgotten."""
    return record.model_copy(
        update={
            "asked_from": {label: record.asked_from.get(label, record.offsets) for label in labels},
            "late": {label: late for label, late in record.late.items() if label in labels},
        }
    )
