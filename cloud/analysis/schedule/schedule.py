"""Decides when a lane polls again: a small stream costs little, and windows are emitted soon. Pure.

A micro-batch costs about the same however few readings it has. A *calm* stream therefore gets its
batches when they are worth most: one soon after each window's end, more while readings of ended
windows still arrive, and otherwise just enough to keep the rows of open windows fresh. How soon
after the end is learned from the stream (ArrivalDelay), so that one batch per end is enough. A busy
stream, and one with a backlog, gets a batch every `least_ms`, also shortly after windows' ends, and
a second one SECOND_POLL_MS later for readings that took longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.terms.windows import Window

DELAY_MS_MIN: Final = 80
"""The shortest delay from a window's end to the first poll, while its last readings pass through
device, broker, bridge and sequencer. Spark asks Kafka for the end of the batch some 30 ms later;
readings of plain devices take 25 ms, one in a hundred 75 ms."""
DELAY_MS_MAX: Final = 200
"""The longest such delay: otherwise one late reading would delay the results of all devices, most
of which are complete. Later readings are found by the second poll, within a second. A stream whose
readings all take longer gets two batches per end."""
QUIET_POLLS: Final = 20
"""Second polls in a row that found no more readings of the ended window, after which a shorter
delay is tried."""
COLD_BATCHES: Final = 30
"""A lane's first batches, from which no delay is learned: they and the readings' way to them are
slow while Java compiles the code."""
PROBATION_POLLS: Final = 5
"""Second polls that must find nothing, after one that found something, before they are left out
again."""
SUMMARY_DELAY_MS: Final = 6_000
"""The delay of minute summaries. Nobody waits for them, so results of queries come first: most
windows end with the minute and five or ten seconds later, and one second after an end was emitted,
four are left until the next."""
SUMMARY_VALUES: Final = 200_000
"""The values (readings times fields) of one summary job: it then takes a second of a processor and
ends before the next windows do. A busy stream's minute is summed up in several jobs."""
SUMMARY_STEP_MS: Final = 10_000
"""The step by which such a minute is divided. Each part is read as long after windows' ends as a
whole minute is."""
SECOND_POLL_MS: Final = 300
"""From the first poll after a window's end to the second one, for readings that took longer; it is
left out where none do. A batch takes about as long, so what the second poll finds is emitted within
a second of the end."""
AHEAD_MS: Final = 600
"""On a busy stream, how long before the first poll after an end the previous batch begins, where it
would have begun a whole step before. The first poll then has fewer readings to compute, and its
results come sooner."""
NEAR_MS: Final = 1_000
"""A poll that would come this shortly before one at a window's end is left out."""
GAP_MS: Final = DELAY_MS_MIN
"""The shortest time from the beginning of one batch to that of the next: less would only bring what
the first one just missed. At most DELAY_MS_MIN, so that there is always a poll at the next end to
wait for."""
BUSY_PER_S: Final = 1_000
"""Readings a second from which a stream is busy: waiting longer would save little, and make the
batch large."""
_UNTRIED: Final = -1
"""`quiet_polls` of a shorter delay that no batch has used yet."""
BACKLOG: Final = 100
"""Unread records from which a stream is busy as well, if they are more than the last batch had."""
NEW_MS: Final = 20_000
"""How long after its registration a query is new: somebody waits for its first rows, e.g. in the
`tail` after `query add`. Its stream is not calm meanwhile, which costs at most twenty batches."""
SOON_MS: Final = 5_000
"""The longest time between batches where no window ends: each reading may be a result that somebody
waits for."""


@dataclass(frozen=True, slots=True)
class ArrivalDelay:
    """How long after a window's end the last readings of a stream arrive, as observed."""

    ms: int = DELAY_MS_MIN
    is_enough: bool = False
    """The second poll found nothing more, so one poll per end is enough."""
    quiet_polls: int = 0
    """Polls since then that found nothing more."""
    probation: int = 0
    """Second polls that still have to find nothing more, after one that found something."""


def last_end(windows: Collection[Window], at_ms: int) -> int | None:
    """The last end of any of them that is not after this time; None where none ends."""
    return max((window.over(at_ms) for window in _ending(windows)), default=None)


def has_second_polls(windows: Collection[Window], least_ms: int) -> bool:
    """Do windows of a busy stream end so seldom that a second poll pays?"""
    slides = [window.slide_ms for window in _ending(windows)]
    return bool(slides) and min(slides) >= 2 * least_ms


def updated_delay(
    delay: ArrivalDelay,
    windows: Collection[Window],
    *,
    before_ms: int | None,
    oldest_ms: int | None,
    batches: int = COLD_BATCHES,
) -> ArrivalDelay:
    """The delay after a batch of a calm stream, where the batch before polled at `before_ms`.

    `oldest_ms` is the event time of its oldest reading. `before_ms` is None where there was no
    batch before, or it may not have had all records: then the delay stays, as it does for the first
    of all `batches` of a lane. Readings later than the longest delay (while a bridge starts, from a
    device that returns) are left to second polls: a longer delay would hold up all others.

    A first late reading brings back second polls, for PROBATION_POLLS of them; one more within
    these makes the delay longer. A device that returns after hours polls like a slow stream, and
    gets its batches for as long as it sends old readings.
    """
    end = None if before_ms is None or batches < COLD_BATCHES else last_end(windows, before_ms)
    if before_ms is None or end is None or (polled_ms := before_ms - end) < delay.ms:
        return delay  # it was the first poll after that end
    if oldest_ms is not None and oldest_ms < end:
        if polled_ms > DELAY_MS_MAX:
            return replace(delay, is_enough=False)
        if not delay.probation:
            return replace(delay, is_enough=False, quiet_polls=0, probation=PROBATION_POLLS)
        return ArrivalDelay(min(max(delay.ms * 2, polled_ms), DELAY_MS_MAX))
    if polled_ms >= delay.ms + SECOND_POLL_MS // 2:
        # The poll before came so late that it would have found all of a slower stream, too.
        return delay
    if delay.quiet_polls == _UNTRIED:
        # The poll before still used the longer delay, which was known to be enough.
        return replace(delay, quiet_polls=0)
    if delay.probation:
        return replace(delay, is_enough=delay.probation == 1, probation=delay.probation - 1)
    if delay.quiet_polls + 1 < QUIET_POLLS or delay.ms <= DELAY_MS_MIN:
        return replace(delay, is_enough=True, quiet_polls=min(delay.quiet_polls + 1, QUIET_POLLS))
    return ArrivalDelay(max(delay.ms * 3 // 4, DELAY_MS_MIN), quiet_polls=_UNTRIED)


def is_busy(readings_per_s: float, *, read: int, left: int | None) -> bool:
    """Is the stream busy?

    `read`: readings of the last batch; `left`: records that wait, None where Kafka does not say.
    """
    return readings_per_s >= BUSY_PER_S or (left is not None and left > max(read, BACKLOG))


def is_new(queries: Iterable[Registered], now_ms: int) -> bool:
    """Is one of them new? By a clock ahead of ours a registration lies in the future: not yet."""
    return any(0 <= now_ms - one.registered_at < NEW_MS for one in queries)


def asks_ms(least_ms: int) -> int:
    """Spark's polling interval, ms; it polls at full multiples of it since 1970, or after a batch.

    With the default of a second it is 400 ms, so that a second poll seldom waits for a multiple.
    """
    return least_ms * 2 // 5


def next_ms(
    began_ms: int,
    windows: Collection[Window],
    *,
    least_ms: int,
    calm_ms: int,
    busy: bool = False,
    oldest_ms: int | None = None,
    delay: ArrivalDelay = ArrivalDelay(),
) -> int:
    """When to poll next, ms: after a batch that began at `began_ms`, for these kinds of windows.

    `least_ms` and `calm_ms` are the times between batches of a busy and of a calm stream; 0 means
    immediately. `oldest_ms` is the event time of the batch's oldest reading: if its window ended
    before the last poll, more of its readings may be on their way.
    """
    if busy or least_ms == 0 or calm_ms <= least_ms or not windows:
        again = (
            _second_polls(began_ms, windows, delay) if has_second_polls(windows, least_ms) else []
        )
        return min([_next_of_busy(began_ms, windows, least_ms, delay), *again])
    if not (windows := _ending(windows)):
        return began_ms + max(least_ms, min(calm_ms, SOON_MS))
    rest_ms = began_ms + calm_ms
    polls = [poll for window in windows for poll in _polls(began_ms, window, least_ms, delay)]
    first = min(poll for poll in polls if poll >= began_ms + min(GAP_MS, least_ms))
    ended_ms = max(window.over(began_ms) for window in windows)
    if oldest_ms is not None and oldest_ms < ended_ms <= began_ms - delay.ms - SECOND_POLL_MS:
        return min(first, began_ms + least_ms)
    return first if first <= rest_ms + NEAR_MS else rest_ms


def next_summary_ms(began_ms: int, interval_ms: int, *, values: int = 0, in_ms: int = 1) -> int:
    """When to poll next for readings to sum up, ms.

    That is after `interval_ms`, or a part of it where more than SUMMARY_VALUES would come until
    then. The last job had `values`, which came within `in_ms`.
    """
    steps = [
        ms for ms in range(SUMMARY_STEP_MS, interval_ms, SUMMARY_STEP_MS) if interval_ms % ms == 0
    ]
    fitting = (
        step
        for step in (interval_ms, *reversed(steps))
        if values * step <= SUMMARY_VALUES * max(in_ms, 1)
    )
    return _next_on_grid(
        began_ms, next(fitting, min(SUMMARY_STEP_MS, interval_ms)), SUMMARY_DELAY_MS
    )


def _next_on_grid(began_ms: int, step_ms: int, delay_ms: int) -> int:
    """Shortly after the next full step, where windows end; immediately for a step of 0."""
    return began_ms - (began_ms - delay_ms) % step_ms + step_ms if step_ms else began_ms


def _next_of_busy(
    began_ms: int, windows: Collection[Window], least_ms: int, delay: ArrivalDelay
) -> int:
    """Shortly after the next full step, or closer to the end that the next poll is for."""
    step_ms = _next_on_grid(began_ms, least_ms, delay.ms)
    if least_ms <= AHEAD_MS or not has_second_polls(windows, least_ms):
        return step_ms
    poll_ms = min(
        poll
        for window in _ending(windows)
        for poll in _first_polls(began_ms, window, delay)
        if poll > began_ms
    )
    return max(step_ms, poll_ms - AHEAD_MS) if poll_ms - least_ms <= step_ms < poll_ms else step_ms


def _ending(windows: Collection[Window]) -> Collection[Window]:
    return {window for window in windows if window.ends and not window.is_sequence}


def _second_polls(began_ms: int, windows: Collection[Window], delay: ArrivalDelay) -> list[int]:
    """The second polls for the windows that ended last, where one poll may not be enough."""
    polls = [window.over(began_ms) + delay.ms + SECOND_POLL_MS for window in _ending(windows)]
    return [] if delay.is_enough else [poll for poll in polls if poll >= began_ms + GAP_MS]


def _polls(began_ms: int, window: Window, least_ms: int, delay: ArrivalDelay) -> list[int]:
    """The polls for the window that ended last, and for the next one to end."""
    ended, ends = polls = _first_polls(began_ms, window, delay)
    # Where windows end as often as batches are made, the poll for the next end is the second one.
    is_once = delay.is_enough or ends - ended < 2 * least_ms
    return polls if is_once else [*polls, ended + SECOND_POLL_MS]


def _first_polls(began_ms: int, window: Window, delay: ArrivalDelay) -> list[int]:
    """The first polls for the window that ended last and for the next one to end."""
    ended_ms = window.over(began_ms)
    ends_ms = ended_ms + window.slide_ms if window.unit is None else window.latest(began_ms)[1]
    return [ended_ms + delay.ms, ends_ms + delay.ms]
