"""The two clocks at each commit: the wall clock, and the machine's time since its start. Pure.

A row is written when their difference changes: with the first commit after each start, when the
clock is set, and when it jumps. So for each batch is known under which start (boot id) it was
accepted and after how many milliseconds of it, at no cost in flash. With that

* stamps from before the clock was set are repaired when it is set, within the same start: the
  machine knows how long ago that was;
* ages are told by the machine's run and not by a clock that jumps.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import orjson

from edgewake.protocol.clock import CLOCK_FLOOR_MS

STEP_MS: Final = 1_000
"""A difference that has changed by so much is written: more than a clock drifts between two
corrections."""
SPANS_MAX: Final = 1_000
"""Differences that are kept; what is older than these is as if nothing were known of it."""


OURS_MS: Final = 86_400_000
"""A stamp this far from what an unset clock said was not made by it: old data that a source replays
stay as they are."""


@dataclass(frozen=True, slots=True)
class Span:
    """From a commit on."""

    commit: int
    boot: str
    offset_ms: int
    """Wall clock less milliseconds since the start."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """All that is known, in the order of the commits."""

    spans: tuple[Span, ...] = ()

    def at(self, commit: int) -> Span | None:
        """What held when a commit was made; None: not known."""
        index = bisect_right(self.spans, commit, key=lambda span: span.commit)
        return self.spans[index - 1] if index else None

    def noted(self, commit: int, boot: str, now_ms: int, monotonic_ms: int) -> Clocks:
        """With what the clocks say at a commit; the same where that is nothing new."""
        last, offset_ms = self.spans[-1] if self.spans else None, now_ms - monotonic_ms
        is_set_now = (
            last is not None and last.offset_ms < CLOCK_FLOOR_MS - monotonic_ms <= offset_ms
        )
        if (
            last is not None
            and last.boot == boot
            and abs(offset_ms - last.offset_ms) < STEP_MS
            and not is_set_now
        ):
            return self
        return Clocks((*self.spans, Span(commit, boot, offset_ms))[-SPANS_MAX:])

    def unset(self, boot: str, monotonic_ms: int) -> Span | None:
        """The last time in this start when the clock was not set; None: never seen."""
        found = (
            span
            for span in reversed(self.spans)
            if boot and span.boot == boot and span.offset_ms + monotonic_ms < CLOCK_FLOOR_MS
        )
        return next(found, None)

    def shift_ms(self, commit: int, boot: str, offset_ms: int) -> int | None:
        """The error of the clock at a commit of this start, now that it says `offset_ms`.

        None where it is unknown.
        """
        span = self.at(commit)
        return None if span is None or not boot or span.boot != boot else offset_ms - span.offset_ms

    def ran_ms(self, commit: int, accepted_at: int, boot: str, monotonic_ms: int) -> int | None:
        """How long this start had run when a batch was accepted; None where that is unknown.

        It is where the batch was repaired, or the row of the clock is damaged. Steps that are too
        small to be written may lead a little before the start, or ahead of the run.
        """
        span = self.at(commit)
        if span is None or not boot or span.boot != boot:
            return None
        ran_ms = accepted_at - span.offset_ms
        return ran_ms if -STEP_MS < ran_ms < monotonic_ms + STEP_MS else None

    def age_ms(
        self, commit: int, accepted_at: int, boot: str, now_ms: int, monotonic_ms: int
    ) -> int:
        """The age of a batch: by the machine's run within one start, else by the wall clock.

        0 where that was not set.
        """
        ran_ms = self.ran_ms(commit, accepted_at, boot, monotonic_ms)
        if ran_ms is None:
            return now_ms - accepted_at if accepted_at >= CLOCK_FLOOR_MS else 0
        return max(0, monotonic_ms - ran_ms)


def repaired(t: int, taken_at: int, shift_ms: int) -> int:
    """A stamp that came when the clock said `taken_at`, moved where that clock made it.

    Other stamps come from a source that knew better.
    """
    return t + shift_ms if t < CLOCK_FLOOR_MS and abs(t - taken_at) <= OURS_MS else t


def repaired_body(body: bytes, taken_at: int, shift_ms: int) -> bytes:
    """Repair the times in the body of a batch."""
    columns = orjson.loads(body)
    columns["t"] = [repaired(t, taken_at, shift_ms) for t in columns["t"]]
    return orjson.dumps(columns)
