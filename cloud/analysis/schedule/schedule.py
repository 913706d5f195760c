"""Decides when a lane polls again: a small stream costs little, and windows are emitted soon. Pure.

A micro-batch costs about the same however few readings are in it. A *calm* stream therefore gets
its batches when they are worth most: one soon after each window's end, more while readings of
windows that ended still come, and between them just often enough to keep the rows of open windows
fresh. How soon is learned from the stream (Settle), so that one batch is enough for an
end. A busy stream, and one with a backlog, gets a batch each `least_ms`; that, too, a little after
windows' ends, and once more SECOND_LOOK_MS later for what took longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.terms.windows import Window

SETTLE_MS: Final = 80
"""After a window's end its last readings are still on their way through device, broker, bridge and
sequencer: at least so long. Spark asks Kafka some 30 ms later where the batch ends, and readings of
plain devices take 25 ms, of a hundred one takes 75."""
SETTLE_MS_MAX: Final = 200
"""No stream's first look at a window that ended is later: one late reading would delay the results
of all devices, most of which are complete, and what is later has its second look within a second. A
stream whose readings all take longer has two batches for each end."""
CLEAN_LOOKS: Final = 20
"""Looks in a row that found nothing of windows that the one before had looked at, after which an
earlier first look is tried."""
COLD_BATCHES: Final = 30
"""A lane's first batches teach nothing: while Java compiles what they run, they and the readings'
way to them are slow."""
DOUBTED_LOOKS: Final = 5
"""Polls that must find nothing after one that did, before the second poll is left out again."""
SUMMARY_SETTLE_MS: Final = 6_000
"""The delay for minute summaries, which nobody waits for: those who wait for results have the
machine to themselves. Most windows end with the minute and five or ten seconds later: a second
after the one end was told there are four until the next."""
SUMMARY_VALUES: Final = 200_000
"""Values that one job for summaries is to have, readings times their fields: it takes a second of a
processor then, which ends before the next windows do. A busy stream's minute is therefore summed up
in pieces."""
SUMMARY_STEP_MS: Final = 10_000
"""The time of such a piece is so long, or a multiple of it: each is read as long after windows'
ends as a minute is."""
SECOND_LOOK_MS: Final = 300
"""After the first look at a window that ended: the next one, for what took longer; left out where
nothing is known to. A batch takes about so long; what the second one finds is told within a second
of the end."""
AHEAD_MS: Final = 600
"""So long before a busy stream's first look at an end the batch before it begins, where it would
have been a whole step before: the first look then has fewer readings to compute, and is told
sooner."""
NEAR_MS: Final = 1_000
"""A look so short before that at a window's end is left to it."""
GAP_MS: Final = SETTLE_MS
"""At least from the beginning of one batch to the next; less would only bring what the first of
them missed by an instant. No more than SETTLE_MS, so that there is always a look at the next end to
wait for."""
BUSY_PER_S: Final = 1_000
"""Readings a second from which a stream is busy: then a longer wait saves little and makes a batch
large."""
_UNTRIED: Final = -1
"""Clean looks of an earlier first look that no batch was made at yet."""
BACKLOG: Final = 100
"""Records that wait, from which, and where they are more than the last batch had, a stream is busy
as well."""
NEW_MS: Final = 20_000
"""Somebody waits for the first rows of a query that was registered so short a time ago, also in the
`tail` that comes after `query add`: its stream is not calm meanwhile, which costs at most twenty
batches."""
SOON_MS: Final = 5_000
"""Where no window ends, each reading may be a result that somebody waits for: no longer than this
from one batch to the next."""


@dataclass(frozen=True, slots=True)
class Settle:
    """How long after a window's end the last readings of a stream come, as far as it was seen."""

    ms: int = SETTLE_MS
    is_enough: bool = False
    """Nothing more had come when it was looked again, so that one look is enough for an end."""
    clean: int = 0
    """Looks since then that found nothing more."""
    doubt: int = 0
    """Looks that still have to find nothing more, after one that did."""


def last_end(windows: Collection[Window], at_ms: int) -> int | None:
    """The last end of any of them that is not after this time; None where none ends."""
    return max((window.over(at_ms) for window in _ending(windows)), default=None)


def has_second_looks(windows: Collection[Window], least_ms: int) -> bool:
    """Do windows of a busy stream end so seldom that a second poll pays?"""
    slides = [window.slide_ms for window in _ending(windows)]
    return bool(slides) and min(slides) >= 2 * least_ms


def learned(
    settle: Settle,
    windows: Collection[Window],
    *,
    before_ms: int | None,
    oldest_ms: int | None,
    batches: int = COLD_BATCHES,
) -> Settle:
    """What a batch of a calm stream shows after one that polled at `before_ms`.

    `oldest_ms`: event time of its oldest reading.

    `before_ms` is None where there was none, or where it might not have all that was there: then
    nothing is learned, and nor is it of the first of all `batches` of a lane. What came later than
    any first look may be (while a bridge starts, from a device that returns) is left to second
    looks: it would delay all others.

    What is late once in DOUBTED_LOOKS is left to second looks; where that happens again, the first
    look itself is later. A device that returns after hours looks like a slow stream, and gets its
    batches for as long as it sends what is old.
    """
    end = None if before_ms is None or batches < COLD_BATCHES else last_end(windows, before_ms)
    if before_ms is None or end is None or (looked_ms := before_ms - end) < settle.ms:
        return settle  # it was the first look at that end
    if oldest_ms is not None and oldest_ms < end:
        if looked_ms > SETTLE_MS_MAX:
            return replace(settle, is_enough=False)
        if not settle.doubt:
            return replace(settle, is_enough=False, clean=0, doubt=DOUBTED_LOOKS)
        return Settle(min(max(settle.ms * 2, looked_ms), SETTLE_MS_MAX))
    if looked_ms >= settle.ms + SECOND_LOOK_MS // 2:
        # the one before came so late that it would have found all of a slower stream, too
        return settle
    if settle.clean == _UNTRIED:
        # The one before was made at the time that was known to be enough.
        return replace(settle, clean=0)
    if settle.doubt:
        return replace(settle, is_enough=settle.doubt == 1, doubt=settle.doubt - 1)
    if settle.clean + 1 < CLEAN_LOOKS or settle.ms <= SETTLE_MS:
        return replace(settle, is_enough=True, clean=min(settle.clean + 1, CLEAN_LOOKS))
    return Settle(max(settle.ms * 3 // 4, SETTLE_MS), clean=_UNTRIED)


def is_busy(readings_per_s: float, *, read: int, left: int | None) -> bool:
    """Is the stream busy?

    `read`: readings of the last batch; `left`: records that wait, None where Kafka does not say.
    """
    return readings_per_s >= BUSY_PER_S or (left is not None and left > max(read, BACKLOG))


def is_new(queries: Iterable[Registered], now_ms: int) -> bool:
    """Is one of them new? One that was registered by a clock that is ahead of ours is so later."""
    return any(0 <= now_ms - one.registered_at < NEW_MS for one in queries)


def asks_ms(least_ms: int) -> int:
    """How often Spark polls for new records, ms: at full multiples of it since 1970.

    Where a batch took longer, it polls after that. It is 400 ms with the default of a second, so
    that a second poll seldom waits for a full multiple.
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
    settle: Settle = Settle(),
) -> int:
    """When to look next, ms: after a batch that began at `began_ms`, for these kinds of windows.

    `least_ms`, `calm_ms`: from one batch to the next, of a busy and of a calm stream; with 0 at
    once. `oldest_ms`: event time of the batch's oldest reading. Where that is of a window that
    ended before the last look, more of them may be on their way.
    """
    if busy or least_ms == 0 or calm_ms <= least_ms or not windows:
        again = (
            _second_looks(began_ms, windows, settle) if has_second_looks(windows, least_ms) else []
        )
        return min([_next_of_busy(began_ms, windows, least_ms, settle), *again])
    if not (windows := _ending(windows)):
        return began_ms + max(least_ms, min(calm_ms, SOON_MS))
    rest_ms = began_ms + calm_ms
    looks = [look for window in windows for look in _looks(began_ms, window, least_ms, settle)]
    first = min(look for look in looks if look >= began_ms + min(GAP_MS, least_ms))
    ended_ms = max(window.over(began_ms) for window in windows)
    if oldest_ms is not None and oldest_ms < ended_ms <= began_ms - settle.ms - SECOND_LOOK_MS:
        return min(first, began_ms + least_ms)
    return first if first <= rest_ms + NEAR_MS else rest_ms


def next_summary_ms(began_ms: int, interval_ms: int, *, values: int = 0, in_ms: int = 1) -> int:
    """When to look next for readings to sum up, ms.

    `values`: how many the last job had; they came within `in_ms`.

    After `interval_ms`, or a part of it where more than SUMMARY_VALUES would come until then.
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
        began_ms, next(fitting, min(SUMMARY_STEP_MS, interval_ms)), SUMMARY_SETTLE_MS
    )


def _next_on_grid(began_ms: int, step_ms: int, settle_ms: int) -> int:
    """A little after the next full step, where windows end; with 0 at once."""
    return began_ms - (began_ms - settle_ms) % step_ms + step_ms if step_ms else began_ms


def _next_of_busy(began_ms: int, windows: Collection[Window], least_ms: int, settle: Settle) -> int:
    """A little after the next full step, or nearer to the end that the next poll is for."""
    step_ms = _next_on_grid(began_ms, least_ms, settle.ms)
    if least_ms <= AHEAD_MS or not has_second_looks(windows, least_ms):
        return step_ms
    look_ms = min(
        look
        for window in _ending(windows)
        for look in _first_looks(began_ms, window, settle)
        if look > began_ms
    )
    return max(step_ms, look_ms - AHEAD_MS) if look_ms - least_ms <= step_ms < look_ms else step_ms


def _ending(windows: Collection[Window]) -> Collection[Window]:
    return {window for window in windows if window.ends and not window.is_sequence}


def _second_looks(began_ms: int, windows: Collection[Window], settle: Settle) -> list[int]:
    """At windows that ended last, where one look may not be enough."""
    looks = [window.over(began_ms) + settle.ms + SECOND_LOOK_MS for window in _ending(windows)]
    return [] if settle.is_enough else [look for look in looks if look >= began_ms + GAP_MS]


def _looks(began_ms: int, window: Window, least_ms: int, settle: Settle) -> list[int]:
    """The polls for the window that ended last, and for the next one to end."""
    ended, ends = looks = _first_looks(began_ms, window, settle)
    # Where windows end as often as batches are made, the next end's look is the second one.
    is_once = settle.is_enough or ends - ended < 2 * least_ms
    return looks if is_once else [*looks, ended + SECOND_LOOK_MS]


def _first_looks(began_ms: int, window: Window, settle: Settle) -> list[int]:
    """The first polls for the window that ended last and for the next one to end."""
    ended_ms = window.over(began_ms)
    ends_ms = ended_ms + window.slide_ms if window.unit is None else window.latest(began_ms)[1]
    return [ended_ms + settle.ms, ends_ms + settle.ms]
