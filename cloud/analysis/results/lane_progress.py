"""Makes the rows of a lane's queries on `ew.progress`: how far each has come. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from edgewake.cloud.analysis.plan.shed_policy import Shedding
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.explain import streams_of
from edgewake.cloud.queries.measures import measures
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.ops.query import Progress, QueryState, Reached

_NONE: Final[Mapping[str, str]] = {}


class Waits(NamedTuple):
    """The reason for a lane's event time to wait."""

    detail: str = ""
    """The reason, for people; empty where it does not wait."""
    stands: bool = False
    """Does no window become final meanwhile, although readings may come?"""


NOTHING: Final = Waits()


ROCKSDB: Final = "rocksdb"
"""How the names of metrics begin that Spark's RocksDB reports of an operator."""


class StateSize(NamedTuple):
    """What Spark keeps of a lane's open windows."""

    rows: int | None
    """None: of RocksDB, which is not asked to count them, for a count costs it a read at each
    write."""
    bytes: int


def state_size(progress: Mapping[str, Any]) -> StateSize | None:
    """The size that Spark's report of a batch says; None where nothing is kept.

    `progress`: StreamingQueryProgress as JSON.
    """
    kept = progress.get("stateOperators") or ()
    if not kept:
        return None
    metrics = {name for one in kept for name in one.get("customMetrics", ())}
    is_counted = not any(name.startswith(ROCKSDB) for name in metrics)
    rows = sum(int(one["numRowsTotal"]) for one in kept)
    return StateSize(rows if is_counted else None, sum(int(one["memoryUsedBytes"]) for one in kept))


def outputs(
    queries: Sequence[Registered],
    record: LaneRecord,
    *,
    rate: float | None,
    left: Mapping[int, int] | None,
    now_ms: int,
    remarks: Mapping[str, str] = _NONE,
    waits: Waits = NOTHING,
    state: StateSize | None = None,
) -> list[emit.Output]:
    """Make the progress records of queries that run.

    `rate`: readings a second; `left`: partition → records that wait; `remarks`: query (label) →
    text for people. `waits`: what event time waits for. `state`: of the whole lane.
    """
    lag = None if left is None else sum(left.values())
    found = []
    for registered in queries:
        shedding = record.shedding.get(registered.label, Shedding())
        said = (record.isolated, shedding.detail, remarks.get(registered.label), waits.detail)
        progress = Progress(
            query=registered.query.name,
            stream=registered.query.stream,
            registered_at=registered.registered_at,
            state=QueryState.RUNNING,
            keys=registered.query.key_names,
            measures=dict(measures(registered.query)),
            batch=record.revision,
            watermark=emit.watermark(registered.query, record.top),
            reached=_reached(registered, record),
            lag=lag,
            readings_per_s=rate,
            state_rows=None if state is None else state.rows,
            state_bytes=None if state is None else state.bytes,
            late=record.late.get(registered.label, 0),
            detail="; ".join(filter(None, said)),
            isolated=bool(record.isolated),
            stands=waits.stands,
            kept=shedding.kept,
            shed=shedding.total,
            updated_at=now_ms,
        )
        found.append(progress_output(progress))
    return found


def _reached(registered: Registered, record: LaneRecord) -> dict[str, Reached]:
    """Stream → how far the query has read it, and where it began where that is not the first."""
    joined_at = record.joined_at_offsets.get(registered.label, {})
    found = {}
    for stream in streams_of(registered.query):
        topic = topics.stream_topic(stream)
        found[stream] = Reached(
            offsets=record.offsets.get(topic, {}), joined_at_offsets=joined_at.get(topic, {})
        )
    return found


def progress_output(progress: Progress) -> emit.Output:
    """A query's progress as a record."""
    return emit.Output(
        topics.PROGRESS, progress.query.encode(), progress.model_dump_json().encode()
    )
