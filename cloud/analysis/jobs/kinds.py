"""The kinds of queries that lanes run: a new one is a file beside this one and a line here.

Which query is of which kind is said by the language (queries/lane_kind.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.jobs.change_job import ChangeJob
from edgewake.cloud.analysis.jobs.job import Job, lane_place
from edgewake.cloud.analysis.jobs.row_job import RowJob
from edgewake.cloud.analysis.jobs.sequence_job import SequenceJob
from edgewake.cloud.analysis.jobs.stream_join_job import StreamJoinJob
from edgewake.cloud.analysis.jobs.table_job import TableJob
from edgewake.cloud.analysis.jobs.table_join_job import TableJoinJob
from edgewake.cloud.queries.explain import streams_of
from edgewake.cloud.queries.lane_kind import LaneKind, kind_of
from edgewake.cloud.queries.query import Query, Registered
from edgewake.protocol.frames.field_type import FieldType

J = TypeVar("J", bound=Job)


@dataclass(frozen=True, slots=True)
class Kind:
    """How queries of a kind are computed."""

    job: type[Job]
    state_format: int = 1
    """Which columns the state of a lane has, or which rows it has on `ew.windows`; it grows where
    they change, and a state of another format is built again."""


KINDS: Final[Mapping[LaneKind, Kind]] = {
    LaneKind.PLAIN: Kind(AggregateJob, state_format=3),
    LaneKind.PLAIN_SHED: Kind(AggregateJob, state_format=2),
    LaneKind.SKETCH: Kind(AggregateJob, state_format=5),
    LaneKind.SKETCH_SHED: Kind(AggregateJob, state_format=3),
    LaneKind.DISTINCT: Kind(AggregateJob, state_format=5),
    LaneKind.ROWS: Kind(RowJob),
    LaneKind.CHANGE: Kind(ChangeJob),
    LaneKind.SEQUENCE: Kind(SequenceJob),
    LaneKind.TABLE_JOIN: Kind(TableJoinJob),
    LaneKind.STREAM_JOIN: Kind(StreamJoinJob, state_format=2),
    LaneKind.TABLE: Kind(TableJob, state_format=2),
}


def jobs_of(
    registered: Sequence[Registered], fields: Mapping[str, Mapping[str, FieldType]]
) -> Mapping[tuple[str, LaneKind], Job]:
    """The lanes that a set of queries needs, by place and kind.

    `fields`: stream → field → type, from the catalogue.
    """
    sorted_queries = sorted(registered, key=lambda r: (r.registered_at, r.query.name))
    lanes: dict[tuple[str, LaneKind], list[Registered]] = {}
    for each in sorted_queries:
        lanes.setdefault((lane_place(each), kind_of(each.query)), []).append(each)
    return {
        (place, kind): _made(KINDS[kind].job, kind, queries, fields)
        for (place, kind), queries in lanes.items()
    }


def job_type(query: Query) -> type[Job]:
    """How a query is computed, where that is to be known before there is a job."""
    return KINDS[kind_of(query)].job


def job_of(
    make: type[J], registered: Registered, fields: Mapping[str, Mapping[str, FieldType]]
) -> J:
    """The job of one query of which it is known how its kind is computed."""
    kind = kind_of(registered.query)
    assert KINDS[kind].job is make, f"{registered.label} is of kind {kind}"
    return _made(make, kind, [registered], fields)


def _made(
    make: type[J],
    kind: LaneKind,
    queries: Sequence[Registered],
    types: Mapping[str, Mapping[str, FieldType]],
) -> J:
    query = queries[0].query
    used = sorted({name for each in queries for name in each.query.fields})
    known = {
        name: kind for one in (*query.others, query.stream) for name, kind in types[one].items()
    }
    fields = tuple((name, known[name]) for name in used)
    return make(kind, streams_of(query), fields, tuple(queries))
