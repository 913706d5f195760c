"""Windows that conditions decide: a threshold with hysteresis, a succession, an absence.

Pure: no Kafka, no Spark, no clock.

* A threshold begins with the first reading of those for which the condition has held long enough,
  and takes readings until the clearing one. Its row is emitted when it is active, and final when it
  is cleared.
* A succession lasts from the reading that met the first condition to the one that met the last,
  within a time. Its row is emitted then, and final.
* An absence begins with a reading after which none came for a time. Its row is emitted when event
  time has passed that, with the values of that reading, and is final when the next reading comes,
  where it then ends.

The rules are those of agents (protocol/patterns/threshold.py, protocol/patterns/succession.py,
edge/processors/operators/absence.py). All go by the order of the log, which is a device's own; a
condition that is neither true nor false changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from edgewake.cloud.analysis.folds.sequences import Changed, KeyState, Open, Values
from edgewake.cloud.analysis.folds.slots import slots_for
from edgewake.cloud.queries.terms.windows import Rule, Window
from edgewake.protocol.patterns import succession, threshold

Met = Sequence[bool | None]
"""The values of the conditions for one reading."""


def add(
    state: KeyState, window: Window, t: int, met: Met, values: Values, changed: Changed
) -> None:
    """Put one reading into its windows."""
    assert window.rule is not None
    _STEPS[window.rule](state, window, t, met, values, changed)


def _threshold(
    state: KeyState, window: Window, t: int, met: Met, values: Values, changed: Changed
) -> None:
    before = threshold.Held(*state.rule) if state.rule else threshold.IDLE
    is_met = met[-1] if before.active else met[0]
    if is_met is None:
        return
    held, _ = threshold.step(before, t, is_met=is_met, for_ms=window.for_ms)
    if before.active and not held.active:
        (over,) = state.windows
        _over(over, changed)
        state.windows = []
    elif held.since is None:
        state.windows = []
    else:
        if held.since != before.since:
            state.windows = [_opened(t, values)]
        state.windows[0].add(t, values)
        if held.active:
            changed.windows[held.since] = state.windows[0]
    state.rule = [held.active, held.since, held.count] if held.since is not None else None


def _succession(
    state: KeyState, window: Window, t: int, met: Met, values: Values, changed: Changed
) -> None:
    before = state.rule or succession.nothing(len(met))
    began, since = succession.step(before, t, met, window.within_ms)
    if met[0] is True and since is None:
        state.windows = [*[one for one in state.windows if one.start != t], _opened(t, values)]
    for one in state.windows:
        one.add(t, values)
        if one.start == since:
            _over(one, changed)
    state.windows = [one for one in state.windows if one.start in began]
    state.rule = began if state.windows else None


def _absence(
    state: KeyState, window: Window, t: int, _: Met, values: Values, changed: Changed
) -> None:
    if state.windows:
        (last,) = state.windows
        if t <= last.start:
            return
        if state.rule or t > last.last:
            last.last = t - 1
            _over(last, changed)
    state.windows, state.rule = [_opened(t, values)], None
    state.windows[0].add(t, values)
    state.windows[0].last = t + window.within_ms - 1


def is_absent(state: KeyState, window: Window, passed: int | None) -> bool:
    """Must an absence be emitted that was not emitted yet?

    `passed`: the event time up to which no more readings are expected.
    """
    return (
        window.rule is Rule.ABSENCE
        and passed is not None
        and not state.rule
        and any(one.last < passed for one in state.windows)
    )


def is_emitted(state: KeyState) -> bool:
    """Was the absence that this state describes emitted?"""
    return bool(state.rule)


def raise_absence(state: KeyState, changed: Changed) -> None:
    """Tell it."""
    state.rule = True
    changed.windows |= {one.start: one for one in state.windows}


def _opened(t: int, values: Values) -> Open:
    return Open(t, t, slots_for(values))


def _over(window: Open, changed: Changed) -> None:
    changed.windows[window.start] = window
    changed.over.add(window.start)


_STEPS: Final[Mapping[Rule, Callable[[KeyState, Window, int, Met, Values, Changed], None]]] = {
    Rule.THRESHOLD: _threshold,
    Rule.SUCCESSION: _succession,
    Rule.ABSENCE: _absence,
}
