"""Lanes whose rows the driver makes: where they keep what is open on `ew.windows`, and how it comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from edgewake.cloud.analysis import join_queries, pair_queries, sequence_queries
from edgewake.cloud.analysis.join_queries import JoinJob
from edgewake.cloud.analysis.lane_record import LaneRecord
from edgewake.cloud.analysis.pair_queries import PairJob
from edgewake.cloud.analysis.sequence_queries import SequenceJob, States
from edgewake.cloud.analysis.table_queries import TableJob

DrivenJob: TypeAlias = SequenceJob | JoinJob | PairJob | TableJob
"""Jobs whose rows the driver makes."""


def place_of(job: DrivenJob) -> str:
    """Where its lane keeps what it keeps on `ew.windows`."""
    return join_queries.place(job.stream) if isinstance(job, JoinJob) else pair_queries.place_of(job.sources)


def new_states(job: DrivenJob) -> States:
    """Nothing known yet."""
    if isinstance(job, PairJob):
        return pair_queries.new_states(job.queries)
    if isinstance(job, JoinJob):
        return join_queries.new_states(job.queries)
    if isinstance(job, TableJob):
        return job.new_states()
    return States({registered.label: {} for registered in job.queries})


def restored(job: DrivenJob, rows: Mapping[str, bytes], record: LaneRecord) -> States:
    """What was known after the last committed batch. `rows`: of `ew.windows` (state_parts.joined); `record`: as it was then."""
    if isinstance(job, PairJob):
        return pair_queries.restored(job.queries, rows, record.top)
    if isinstance(job, JoinJob):
        return join_queries.restored(job.queries, rows)
    if isinstance(job, TableJob):
        return job.restored(rows)
    return sequence_queries.restored(job.queries, rows, record.asked_from)
