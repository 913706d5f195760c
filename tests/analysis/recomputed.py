"""Repairs of a lane that stands still, done to their end without the rest of the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.repair.repair import Standing
from edgewake.cloud.analysis.repair.repairs import Repairs
from edgewake.cloud.analysis.results.transaction import read_lane_record
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.repair import Repair, RepairKind
from tests.analysis.support import Analysis, Feed, read, unique
from tests.services import wait_until


def recomputed(
    analysis: Analysis,
    lane: Lane,
    one: Registered,
    queries: Sequence[Registered],
    feeds: Sequence[Feed],
    kind: RepairKind,
) -> Repair:
    """Ask for it, of all windows; what became of it.

    `queries`: all of the lane, which was stopped; `feeds`: of the streams of FROM.
    """
    kafka, now_ms = analysis.config.kafka, SystemClock().now_ms()
    topic_admin.ensure_topics(kafka, [topics.REPAIRS])
    name, types = one.query.name, {feed.name: feed.types for feed in feeds}
    asked = Repair(
        id=unique("repair"), query=name, registered_at=one.registered_at, kind=kind, begin=0,
        asked_at=now_ms, asked_by="test",
        updated_at=now_ms,
    )  # fmt: skip
    checkpoints = analysis.config.kept_dir / "checkpoints"
    with closing(
        Repairs(analysis.session, kafka, SystemClock(), checkpoints, analysis.config.lake_dir)
    ) as repairs:
        repairs.on_row(asked.id, asked.model_dump_json().encode())

        def is_over() -> bool:
            if not repairs.is_working and not repairs.is_idle:
                record = read_lane_record(kafka, lane.record.key)
                assert record is not None
                repairs.turn(
                    {name: one.registered_at}, {name: Standing(one, record, types, tuple(queries))}
                )
            return repairs.is_idle and not repairs.is_working

        wait_until(is_over, f"{kind} of {name}")
    return [
        Repair.model_validate(row.value)
        for row in read(kafka, topics.REPAIRS)
        if row.key == asked.id.encode()
    ][-1]
