"""Isolates a query: gives it a lane of its own, which goes on exactly where the old one is.

The state is copied, then the lane's record: from the same offsets, with the same revision, so no
reading of the query is lost or doubled, and no revision is emitted twice. The record is written in
one transaction under the old lane's id; with it the query is isolated.
"""

from __future__ import annotations

import random
import uuid
from contextlib import closing
from dataclasses import replace

from edgewake.cloud.analysis.checkpoints.checkpoint import copied
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import lane_place
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.results import lane_record
from edgewake.cloud.analysis.results.emit import Output
from edgewake.cloud.analysis.results.lane_progress import outputs
from edgewake.cloud.analysis.results.transaction import LaneTransactions, read_lane_record
from edgewake.cloud.analysis.schedule.slow import Slow
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.clock import moment


def why(slow: Slow[Registered], now_ms: int) -> str:
    """The reason for an isolation, for people."""
    return (
        f"slow: in a lane of its own since {moment(now_ms)}, because the others of its lane waited "
        "for it: "
        f"of readings that took {slow.whole_s:.1f} s"
        f" of processor they needed {slow.others_s:.1f} s; it stays there until it is registered "
        "again with another text, or removed and registered"
    )


def isolate(
    config: AnalysisConfig,
    lane: Lane,
    registered: Registered,
    reason: str,
    now_ms: int,
    rng: random.Random,
) -> Registered:
    """Gives the query a lane of its own, and returns it as it is then.

    `lane`: is stopped. Raises what Kafka and the disk do; then nothing has changed.
    """
    own = replace(registered, is_isolated=True)
    place, kind = lane_place(own), lane.job.kind
    copied(
        lane.checkpoint,
        config.kept_dir / "checkpoints" / place / kind,
        str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    )
    with closing(LaneTransactions(config.kafka, lane.name)) as transactions:
        record = read_lane_record(config.kafka, lane.record.key) or lane.record
        after = lane_record.isolated(record, place, own.label, reason)
        said = outputs([own], after, rate=None, left=None, now_ms=now_ms)
        transactions.write(
            [Output(topics.LANES, after.key, after.model_dump_json().encode()), *said]
        )
    return own
