"""A lane's position at its start: brings record, checkpoint and states into agreement.

The record is on `ew.lanes`, the states are on `ew.windows`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from edgewake.cloud.analysis.checkpoints import checkpoint, state_parts
from edgewake.cloud.analysis.checkpoints.log_reader import kept_from
from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows, withheld_rows
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job, States, lane_place
from edgewake.cloud.analysis.jobs.kinds import KINDS
from edgewake.cloud.analysis.results.lane_record import LaneRecord, begin, without_recreated_topic
from edgewake.cloud.analysis.results.transaction import Ends, read_lane_record
from edgewake.cloud.analysis.results.withheld import Withheld
from edgewake.cloud.kafka.config import KafkaConfig

log = logging.getLogger("edgewake.analysis")


def record_of(config: AnalysisConfig, job: Job, name: str, folder: Path) -> LaneRecord:
    """The lane's record.

    Its checkpoint in `folder` is repaired, or removed where the lane cannot read its state.

    Raises LocalError, Unavailable.
    """
    new = LaneRecord(stream=lane_place(job.queries[0]), lane=job.kind)
    record = read_lane_record(config.kafka, new.key) or new
    state_format = KINDS[job.kind].state_format
    if checkpoint.remove_other_format(folder, state_format, config.state_store):
        why = "its state has another format or lies in another store, and is built again"
        log.warning("lane %s: %s", name, why, extra={"event": "checkpoint.removed"})
    if (mended := checkpoint.mend(folder, record.offsets)) is not None:
        log.warning(
            "lane %s: checkpoint mended: %s", name, mended, extra={"event": "checkpoint.mended"}
        )
    return record


def begun(
    config: AnalysisConfig,
    job: Job,
    name: str,
    record: LaneRecord,
    ends: Ends,
    *,
    has_checkpoint: bool,
    now_ms: int,
) -> LaneRecord:
    """Returns the record to continue from, and logs losses by retention.

    Raises Unavailable.
    """
    sources = job.source_topics
    kept = {} if has_checkpoint else ends.kept()
    for topic in sources.topics:
        places = {sources.place(number): end for number, (_, end) in kept.items()}
        of_topic = {partition: end for (of, partition), end in places.items() if of == topic}
        record = without_recreated_topic(record, topic, of_topic)
    computed = sources.flat(record.offsets)
    lost = {
        partition: (computed[partition], start)
        for partition, (start, _) in kept.items()
        if start > computed.get(partition, start)
    }
    if lost:
        log.warning(
            "lane %s: retention deleted readings before they were computed: %s",
            name,
            lost,
            extra={"event": "stream.lost"},
        )
    is_cut = any(start > 0 for start, _ in kept.values())
    return begin(
        record,
        {registered.label for registered in job.queries},
        has_checkpoint=has_checkpoint,
        cut_to=_cut_to(config.kafka, job, now_ms) if is_cut else None,
        now_ms=now_ms,
    )


def _cut_to(kafka: KafkaConfig, job: Job, now_ms: int) -> int | None:
    """The event time, ms, from which on all topics have whole windows. Raises Unavailable.

    None where retention removed nothing.
    """
    found = [kept_from(kafka, topic, now_ms=now_ms) for topic in job.source_topics.topics]
    return max((at for at in found if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a lane left on `ew.windows`."""

    rows: dict[str, bytes]
    states: States
    withheld: Withheld


def kept(kafka: KafkaConfig, job: Job, record: LaneRecord) -> Kept:
    """Read once its transactions are made: they end what a dead predecessor left open.

    `record`: as it was after the last committed batch. Raises LocalError, Unavailable.
    """
    held = withheld_rows(kafka, job.queries)
    rows = kept_rows(kafka, job.state_place) if job.is_driven else {}
    return Kept(
        rows | held,
        job.restored(state_parts.joined(rows), record),
        Withheld(job.queries, state_parts.joined(held)),
    )
