"""Deadband, or report by exception: drops readings that differ little from the last one passed on.

A reading passes where one of the fields differs by more than `delta` and more than `percent` of the
last value, where one stops or starts to be a number and is unequal, where `max_s` has passed since
the last one, and where the time goes backwards (with a remark), because nobody knows then for how
long nothing passed. A slow drift passes as soon as it has left the band.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import DeadbandConfig
from edgewake.edge.processors.processor import Remark, State, Stepped, number
from edgewake.protocol.frames.frame import Scalar


class Deadband:
    """The step. Its state: [t, fields] of the last reading that went on."""

    initial: State = None

    def __init__(self, config: DeadbandConfig) -> None:
        self._fields = config.fields
        self._delta = config.delta
        self._share = config.percent / 100
        self._max_ms = None if config.max_s is None else config.max_s * 1000

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        watched = {name: fields.get(name) for name in self._fields or fields}
        if state is None:
            return Stepped([t, watched], (reading,))
        last_t, last = state
        if t < last_t:
            return Stepped([t, watched], (reading,), (Remark.BACKWARDS,))
        is_due = self._max_ms is not None and t - last_t >= self._max_ms
        if is_due or any(
            self._differs(last.get(name), watched.get(name))
            for name in watched.keys() | last.keys()
        ):
            return Stepped([t, watched], (reading,))
        return Stepped(state)

    def _differs(self, last: Scalar, now: Scalar) -> bool:
        before, after = number(last), number(now)
        if before is None or after is None:
            return last.__class__ is not now.__class__ or last != now
        return abs(after - before) > max(self._delta, self._share * abs(before))
