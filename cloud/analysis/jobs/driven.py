"""Lanes whose rows the driver makes: where they keep what is open on `ew.windows`, and how it comes
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from edgewake.cloud.analysis.jobs import sequence_job, stream_join_job, table_join_job
from edgewake.cloud.analysis.jobs.sequence_job import SequenceJob, States
from edgewake.cloud.analysis.jobs.stream_join_job import PairJob
from edgewake.cloud.analysis.jobs.table_job import TableJob
from edgewake.cloud.analysis.jobs.table_join_job import JoinJob
from edgewake.cloud.analysis.results.lane_record import LaneRecord

DrivenJob: TypeAlias = SequenceJob | JoinJob | PairJob | TableJob
"""Jobs whose rows the driver makes."""


def place_of(job: DrivenJob) -> str:
    """Where its lane keeps what it keeps on `ew.windows`."""
    return (
        table_join_job.place(job.stream)
        if isinstance(job, JoinJob)
        else stream_join_job.place_of(job.sources)
    )


def new_states(job: DrivenJob) -> States:
    """Nothing known yet."""
    if isinstance(job, PairJob):
        return stream_join_job.new_states(job.queries)
    if isinstance(job, JoinJob):
        return table_join_job.new_states(job.queries)
    if isinstance(job, TableJob):
        return job.new_states()
    return States({registered.label: {} for registered in job.queries})


def restored(job: DrivenJob, rows: Mapping[str, bytes], record: LaneRecord) -> States:
    """What was known after the last committed batch.

    `rows`: of `ew.windows` (state_parts.joined); `record`: as it was then.
    """
    if isinstance(job, PairJob):
        return stream_join_job.restored(job.queries, rows, record.top)
    if isinstance(job, JoinJob):
        return table_join_job.restored(job.queries, rows)
    if isinstance(job, TableJob):
        return job.restored(rows)
    return sequence_job.restored(job.queries, rows, record.asked_from)
