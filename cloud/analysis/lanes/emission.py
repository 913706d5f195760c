"""A lane's emissions: results, progress and record in one Kafka transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from edgewake.cloud.analysis.checkpoints import state_parts
from edgewake.cloud.analysis.folds.table_follower import TableFollower
from edgewake.cloud.analysis.jobs.job import Job, States
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.plan.late import LateWindow
from edgewake.cloud.analysis.results import emit, lane_progress
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.analysis.results.lane_record import LaneRecord, with_incomplete_before
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.analysis.results.transaction import LaneTransactions
from edgewake.cloud.analysis.results.withheld import Withheld
from edgewake.cloud.traces.tracer import Carried
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.analysis")


class Stopped(Exception):
    """The lane was asked to stop; the batch is computed again later."""


@dataclass
class _Written:
    """What one transaction has written, as far as it is."""

    after: LaneRecord
    """Where the lane is after it."""
    results: int = 0


class Emission:
    """Emits the results of one lane, from its start on. Not thread-safe: see Lane."""

    def __init__(
        self,
        job: Job,
        name: str,
        clock: Clock,
        counters: Counters,
        transactions: LaneTransactions,
        *,
        record: LaneRecord,
        states: States,
        tables: TableFollower | None,
        withheld: Withheld,
        kept: Mapping[str, bytes],
        emitted_rows: dict[str, EmittedRows],
        unknown_to: Mapping[str, int],
        broken: dict[str, str],
    ) -> None:
        """`kept`: the lane's rows of `ew.windows`; `emitted_rows`, `unknown_to`: see emit.Batch.

        `broken`: Lane.broken, to which it adds.
        """
        self._job, self._name, self._clock, self._counters = job, name, clock, counters
        self._transactions = transactions
        self.record = record
        """The lane's committed position."""
        self.states = states
        self._tables = tables
        self._withheld = withheld
        self._parts = state_parts.Parts(kept)
        self._emitted_rows, self._unknown_to, self._broken = emitted_rows, unknown_to, broken
        self.said = lane_progress.NOTHING
        """The reason for event time to wait that was published last."""
        self.state: lane_progress.StateSize | None = None
        """What Spark keeps of open windows, as far as it was asked."""
        self.has_said_running = False

    def step(self, top: int | None, meter: Meter | None = None) -> emit.Batch:
        """The next batch, with event time at `top` after it."""
        return emit.Batch(
            revision=self.record.revision + 1,
            top_before=self.record.top,
            top=top,
            complete_from=self.record.complete_from,
            emitted_rows=self._emitted_rows,
            unknown_to=self._unknown_to,
            emitted=self.record.offsets,
            meter=Meter() if meter is None else meter,
        )

    def catch_up(self, meter: Meter, is_over: Callable[[], bool]) -> None:
        """Read what is new in the tables, where there are any. Raises Stopped, Unavailable."""
        if self._tables is None:
            return
        closed = {
            registered.label: emit.closed(registered.query, self.record.top)
            for registered in self._job.queries
        }
        for _ in self.states.catch_up(self._tables, closed, meter):
            if is_over():
                raise Stopped(self._name)

    def write(
        self,
        made: Iterable[emit.Output | emit.Outputs],
        step: emit.Batch,
        after: LaneRecord,
        *,
        broken: emit.Broken,
        progress: Sequence[emit.Output],
        why: str,
        late: Sequence[LateWindow] = (),
        trace: Carried = (),
    ) -> int:
        """Write one transaction, after which the lane is at `after`; return the number of results.

        `made`: the states' outputs, which may put queries into `broken`; `why` describes these for
        people. `trace`: headers of the results. Raises KafkaException, or what making a record
        raises.
        """
        written = _Written(after)
        results = self._results(made, step, broken, written)
        end = self._end(written, step, broken, progress, late)
        self._transactions.write(chain(results, end), trace)
        self.record, self.has_said_running = written.after, True
        self._broken |= {label: f"{why} cannot be made: {what}" for label, what in broken.items()}
        return written.results

    def _results(
        self,
        made: Iterable[emit.Output | emit.Outputs],
        step: emit.Batch,
        broken: emit.Broken,
        written: _Written,
    ) -> Iterator[emit.Output | emit.Outputs]:
        """The states' outputs, each as large as Kafka takes it; `written` counts them."""
        now_ms = self._clock.now_ms()
        for output in self._withheld.through(made, step, broken):
            if isinstance(output, emit.Outputs):
                written.results += len(output.keys)
                yield from emit.all_bounded(output, now_ms=now_ms)
            else:
                written.results += 1
                yield from self._cut(output, now_ms)

    def _end(
        self,
        written: _Written,
        step: emit.Batch,
        broken: emit.Broken,
        progress: Sequence[emit.Output],
        late: Sequence[LateWindow],
    ) -> Iterator[emit.Output | emit.Outputs]:
        """Late readings, progress, and the lane's record.

        It begins when all results are written: they decide which queries are broken, and what was
        forgotten.
        """
        yield from emit.late_outputs(late, self._job.queries, step)
        written.after = after = self._with_incomplete(written.after, step)
        names = {label.rpartition("@")[0].encode() for label in broken}
        yield from (output for output in progress if output.key not in names)
        yield emit.Output(topics.LANES, after.key, after.model_dump_json().encode())

    def say(self, progress: Sequence[emit.Output]) -> None:
        """Report that the lane runs, and what event time waits for. Raises KafkaException."""
        self._transactions.write(progress)
        self.has_said_running = True

    def progress(
        self,
        record: LaneRecord,
        waits: lane_progress.Waits,
        *,
        rate: float | None = None,
        left: Mapping[int, int] | None,
    ) -> list[emit.Output]:
        """The progress of each query that is not broken, with the lane at `record`."""
        self.said = waits
        return lane_progress.outputs(
            [one for one in self._job.queries if one.label not in self._broken],
            record,
            rate=rate,
            left=left,
            now_ms=self._clock.now_ms(),
            remarks=self.states.remarks(self._tables),
            waits=waits,
            state=self.state,
        )

    def _with_incomplete(self, after: LaneRecord, step: emit.Batch) -> LaneRecord:
        """The record, where more was open than is kept and some of it was forgotten."""
        if step.lacks_before:
            log.warning(
                "lane %s: too much state is open; the state without a reading for longest was "
                "dropped of %s", self._name,
                ", ".join(step.lacks_before), extra={"event": "states.forgotten"},
            )  # fmt: skip
            self._counters.forgotten += 1
        return with_incomplete_before(after, step.lacks_before)

    def _cut(self, output: emit.Output, now_ms: int) -> Iterator[emit.Output]:
        """The outputs, each cut to the allowed size."""
        if output.topic != topics.WINDOWS:
            yield emit.bounded(output, now_ms=now_ms)
            return
        for key, value in self._parts.cut(output.key, output.value):
            yield emit.bounded(emit.Output(topics.WINDOWS, key, value), now_ms=now_ms)
