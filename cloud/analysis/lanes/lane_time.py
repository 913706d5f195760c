"""How far event time has come in a lane, batch by batch and in silence, and what it waits for.

Pure but for what `Upstream` asks: decided by results/event_time.py and results/event_progress.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.lanes import waits_for
from edgewake.cloud.analysis.lanes.upstream_hold import nothing_holds, nothing_to_say
from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.results import event_progress, lane_progress
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.analysis.results.event_time import EventTime
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Query

STANDS_S: Final = 10.0
"""Seconds for which event time has to be the same, while records are unread, to be reported as
standing: a lane that starts reads for some seconds what has come before."""


@dataclass
class Upstream:
    """Records that sequencers have not passed on yet (upstream_hold.py)."""

    hold: Callable[[int], int | None] = nothing_holds
    """Time in ms → the event time that must not be passed, if any."""
    why: Callable[[int], str] = nothing_to_say
    """Time in ms → the reason, for people."""


class LaneTime:
    """The event time of a lane since its start; used by the thread of its batches.

    `waits` may be asked by other threads, too.
    """

    def __init__(
        self,
        config: AnalysisConfig,
        record: LaneRecord,
        sources: CombinedTopics,
        partitions: int,
        upstream: Upstream,
    ) -> None:
        self._sources, self._upstream = sources, upstream
        self._event_time = EventTime(partitions, int(config.event_time_wait_s * 1000))
        self.tops = dict(record.tops)
        """Partition → latest event time of its readings, ms."""
        self.received_at: dict[int, int] = {}
        """Partition → latest reception of them, ms."""
        self._waits_for = ""
        """Why event time has waited since the last batch."""
        self._stood_at: tuple[int | None, int] | None = None
        """Event time where unread records are waited for, and since when it is that, ms."""

    def observe(self, observed: Observed) -> None:
        """Record the event times of a batch."""
        for known, latest in (
            (self.tops, observed.tops),
            (self.received_at, observed.received_at),
        ):
            known |= {
                partition: max(at, known.get(partition, at)) for partition, at in latest.items()
            }

    def after(
        self,
        record: LaneRecord,
        observed: Observed,
        reached: Offsets,
        left: Mapping[int, int] | None,
        now_ms: int,
    ) -> int | None:
        """Return event time after a batch that goes to `reached`, ms; see EventTime.after."""
        top = self._event_time.after(
            record.top,
            tops=self.tops,
            received_at=self.received_at,
            start=self._sources.flat(record.offsets),
            reached=self._sources.flat(reached),
            left=left,
            oldest=observed.oldest,
            now_ms=now_ms,
        )
        self._waits_for = waits_for.unread(
            self._event_time.behind, is_known=left is not None, is_late=self._event_time.is_late
        )
        return event_progress.held(record.top, top, self._upstream.hold(now_ms))

    def in_silence(
        self, record: LaneRecord, silent_s: float, queries: Iterable[Query], now_ms: int
    ) -> int | None:
        """Event time after this much silence, ms; `record.tops` has the latest times."""
        silence = event_progress.progress_in_silence(
            record.top, record.tops, int(silent_s * 1000), queries
        )
        return event_progress.held(record.top, silence, self._upstream.hold(now_ms))

    def waits_for_nothing(self) -> None:
        """Note that everything was read and event time has advanced without it."""
        self._waits_for = ""

    def waits(self, record: LaneRecord, now_ms: int, silence: str = "") -> lane_progress.Waits:
        """The reason why event time waits, for people; `silence` where there is no other.

        A lane that reads what came before it began waits for records and moves on: it stands where
        its event time has been the same for STANDS_S.
        """
        if why := self._upstream.why(now_ms):
            return lane_progress.Waits(why, stands=True)
        if self._waits_for:
            stood = self._stood_at  # once: the supervisor asks beside the thread of the batches
            if stood is None or stood[0] != record.top:
                stood = self._stood_at = (record.top, now_ms)
            is_long = now_ms - stood[1] >= STANDS_S * 1000
            return lane_progress.Waits(self._waits_for, stands=is_long)
        self._stood_at = None
        return lane_progress.Waits(silence if record.tops else "")
