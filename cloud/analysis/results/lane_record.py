"""A lane's position and revision, written in the transaction that holds its batch's results.

It is on `ew.lanes`, and read when the lane starts.

It decides what is new (batch_commit): what its offsets cover was emitted, whatever Spark's own
checkpoint says. Revisions count its transactions, so they grow whatever becomes of the checkpoint,
and the highest revision stays the truth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from edgewake.cloud.analysis.plan.shed_policy import Shedding

CLOCKS_APART_MS: Final = 10_000
"""How far a device's clock may be ahead of the cloud's, ms, before a window whose first readings
came before the query did would count as complete."""


class LaneRecord(BaseModel):
    """The position of a lane; its key is stream|lane."""

    model_config = ConfigDict(frozen=True)

    stream: str
    lane: str
    revision: int = -1
    """Number of the last transaction with results; -1 before the first."""
    top: int | None = None
    """Event time, ms (event_progress): windows of a query are final up to `top - lateness`."""
    tops: dict[int, int] = {}
    """Partition → latest event time of its readings, ms."""
    offsets: dict[str, dict[int, int]] = {}
    """Topic → partition → first offset whose results were never emitted."""
    joined_at_offsets: dict[str, dict[str, dict[int, int]]] = {}
    """Query (name@registered_at) → the lane's `offsets` when it joined: earlier records were
    computed without it."""
    complete_from: dict[str, int] = {}
    """Query (name@registered_at) → event time, ms: of windows that begin before it some readings
    may be missing, because they were passed on before the query joined or were lost to retention. A
    query that is not here was asked for everything there ever was."""
    late: dict[str, int] = {}
    """Query (name@registered_at) → readings counted as late so far."""
    isolated: str = ""
    """Why its one query is isolated (schedule/slow.py)."""
    shedding: dict[str, Shedding] = {}
    """Query (name@registered_at) → the share of readings that it takes, from which offsets on
    (shed_policy)."""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return f"{self.stream}|{self.lane}".encode()


def begin(
    record: LaneRecord,
    labels: Collection[str],
    *,
    has_checkpoint: bool,
    cut_to: int | None,
    now_ms: int,
) -> LaneRecord:
    """The record to go on from with exactly these queries. Pure.

    `has_checkpoint`: is there a state to go on from? Otherwise the stream is computed from the
    first reading that it keeps. `cut_to`: event time, ms, of the first windows that it still has
    whole, where it does not keep all that is to be computed.
    """
    if (
        labels
        and not has_checkpoint
        and not any(label in record.joined_at_offsets for label in labels)
    ):
        # Nothing of these queries was ever computed, so all of it is new to them.
        record = LaneRecord(stream=record.stream, lane=record.lane, revision=record.revision)
    safe = now_ms + CLOCKS_APART_MS
    joins = {label for label in labels if label not in record.joined_at_offsets and record.offsets}
    complete_from = {
        label: at for label, at in record.complete_from.items() if label in labels
    } | dict.fromkeys(joins, safe)
    if cut_to is not None:
        complete_from = {label: max(cut_to, complete_from.get(label, cut_to)) for label in labels}
    return record.model_copy(
        update={
            "joined_at_offsets": {
                label: record.joined_at_offsets.get(label, record.offsets) for label in labels
            },
            "complete_from": complete_from,
            "late": {label: late for label, late in record.late.items() if label in labels},
            "shedding": {
                label: shedding for label, shedding in record.shedding.items() if label in labels
            },
        }
    )


def isolated(record: LaneRecord, place: str, label: str, why: str) -> LaneRecord:
    """The record of the lane `place`, which takes one isolated query out of another lane. Pure.

    It starts exactly where the lane of `record` is.
    """
    own: dict[str, Mapping[str, Any]] = {
        "joined_at_offsets": record.joined_at_offsets,
        "complete_from": record.complete_from,
        "late": record.late,
        "shedding": record.shedding,
    }
    only = {
        name: {of: one for of, one in values.items() if of == label} for name, values in own.items()
    }
    return record.model_copy(update={"stream": place, "isolated": why, **only})


def with_incomplete_before(record: LaneRecord, lacks_before: Mapping[str, int]) -> LaneRecord:
    """Return the record after windows before these times (ms) were forgotten, by query (label)."""
    if not lacks_before:
        return record
    complete_from = {
        label: max(at, record.complete_from.get(label, at)) for label, at in lacks_before.items()
    }
    return record.model_copy(update={"complete_from": record.complete_from | complete_from})


def without_recreated_topic(record: LaneRecord, topic: str, ends: Mapping[int, int]) -> LaneRecord:
    """The record without the offsets of a topic that ends before them.

    Such a topic was deleted and created again, and none of it was computed.
    """
    if all(
        offset <= ends.get(partition, offset)
        for partition, offset in record.offsets.get(topic, {}).items()
    ):
        return record
    return record.model_copy(
        update={
            "offsets": {name: offsets for name, offsets in record.offsets.items() if name != topic}
        }
    )
