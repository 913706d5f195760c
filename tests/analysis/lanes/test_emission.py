"""What one transaction of a lane holds, and where the lane stands after it; the producer is the
test's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from edgewake.cloud.analysis.jobs.job import Job, Stateless
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.emission import Emission
from edgewake.cloud.analysis.plan.late import LateWindow
from edgewake.cloud.analysis.results import emit, lane_progress
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.withheld import Withheld
from edgewake.protocol import topics
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import registered, sql

STREAM = Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})
AT = {"ew.s.s": {0: 7}}


class Written:
    """Transactions as a list; `fails` is raised after so many records of the next one."""

    def __init__(self) -> None:
        self.committed: list[emit.Output] = []
        self.fails_after: int | None = None

    def write(self, outputs: Iterable[emit.Output | emit.Outputs], trace: object = ()) -> None:
        """All or none."""
        found = []
        for number, output in enumerate(emit.each(outputs)):
            if number == self.fails_after:
                raise OSError("Kafka is away")
            found.append(output)
        self.committed += found


def job_of_two() -> Job:
    window = "window(event_time, '1 minute'), device"
    files = [sql("s", "device, count(*) AS n", window, name=name) for name in ("good", "bad")]
    (job,) = jobs_of(
        registered(*files, streams=[STREAM]), {"s": {"speed": FieldType.NUMBER}}
    ).values()
    return job


class Lane:
    """An emission and what it wrote."""

    def __init__(self) -> None:
        self.job, self.written, self.counters = job_of_two(), Written(), Counters()
        self.broken: dict[str, str] = {}
        transactions: Any = self.written
        self.emission = Emission(
            self.job,
            "s-plain",
            FakeClock(),
            self.counters,
            transactions,
            record=LaneRecord(stream="s", lane="plain"),
            states=Stateless(lambda *_: iter(())),
            tables=None,
            withheld=Withheld(self.job.queries),
            kept={},
            emitted_rows={},
            unknown_to={},
            broken=self.broken,
        )

    def write(self, made: Iterable[emit.Output | emit.Outputs], **more: Any) -> int:
        """One batch up to AT."""
        emission = self.emission
        step = more.pop("step", None) or emission.step(60_000)
        after = emission.record.model_copy(
            update={"revision": step.revision, "offsets": AT, "top": step.top}
        )
        progress = emission.progress(after, lane_progress.NOTHING, left={})
        broken: emit.Broken = more.pop("broken", {})
        return emission.write(
            made, step, after, broken=broken, progress=progress, why="results up to 7", **more
        )

    def on(self, topic: str) -> list[emit.Output]:
        """What was committed on a topic."""
        return [one for one in self.written.committed if one.topic == topic]


def row(job: Job, number: int = 0) -> emit.Output:
    return emit.Output(job.queries[0].topic, f"[0,60000,{number}]".encode(), b'{"n":1}')


def test_results_progress_and_record_are_one_transaction_with_the_record_last() -> None:
    lane = Lane()
    topic = lane.job.queries[0].topic
    columns = emit.Outputs(topic, [b"[0,1]", b"[0,2]"], [b'{"n":1}', b'{"n":2}'])
    assert lane.write([row(lane.job), columns]) == 3
    assert [one.topic for one in lane.written.committed] == [
        *[topic] * 3,
        *[topics.PROGRESS] * 2,
        topics.LANES,
    ]
    record = LaneRecord.model_validate_json(lane.written.committed[-1].value or b"")
    assert record == lane.emission.record
    assert (record.revision, record.offsets, record.top) == (0, AT, 60_000)


def test_where_a_transaction_fails_the_lane_stands_where_it_did() -> None:
    lane = Lane()
    before = lane.emission.record
    for fails_after in range(4):
        lane.written.fails_after = fails_after
        with pytest.raises(OSError, match="away"):
            lane.write([row(lane.job)])
        assert (lane.emission.record, lane.emission.has_said_running) == (before, False)
    lane.written.fails_after = None
    assert lane.write([row(lane.job)]) == 1
    assert len(lane.on(topics.LANES)) == 1


def test_a_query_that_breaks_meanwhile_reports_no_progress_and_the_other_does() -> None:
    lane = Lane()
    good, bad = lane.job.queries
    broken: emit.Broken = {}

    def made() -> Iterable[emit.Output]:
        yield row(lane.job)
        broken[bad.label] = "it divides by zero"

    lane.write(made(), broken=broken)
    assert [one.key for one in lane.on(topics.PROGRESS)] == [good.query.name.encode()]
    assert lane.broken == {bad.label: "results up to 7 cannot be made: it divides by zero"}
    lane.write([])
    assert {one.key for one in lane.on(topics.PROGRESS)[1:]} == {good.query.name.encode()}


def test_what_states_forgot_while_records_were_made_is_in_the_record_of_the_same_batch() -> None:
    lane = Lane()
    label = lane.job.queries[0].label
    step = lane.emission.step(60_000)

    def made() -> Iterable[emit.Output]:
        yield row(lane.job)
        step.lacks_before[label] = 50_000

    lane.write(made(), step=step)
    assert lane.emission.record.complete_from == {label: 50_000}
    assert lane.counters.forgotten == 1


def test_late_readings_are_written_with_the_batch_that_had_them() -> None:
    lane = Lane()
    late = LateWindow(place=0, start=0, end=60_000, readings=2, examples=('{"speed":1}',))
    lane.write([row(lane.job)], late=[late])
    (one,) = lane.on(topics.LATE)
    assert orjson.loads(one.value or b"")["fields"]["readings"] == [2]
