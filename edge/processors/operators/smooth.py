"""Smooth: a field's noise taken out, under the same name.

`exponential`: a value's weight halves with every `half_life_s` of event time that passes, so uneven
intervals do no harm. `mean` and `median`: of the last `count` values; the median takes out single
spikes. A value that is not a number goes on as it is, with a remark, and changes nothing. Where the
time goes backwards (a remark) no time has passed for that one reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Final

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import SmoothConfig
from edgewake.edge.processors.processor import Remark, State, Stepped, no_number, number


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


_OF_LAST: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": _mean,
    "median": _median,
}


class Smooth:
    """The step. Its state, per field: [t, smoothed value], or the last values."""

    def __init__(self, config: SmoothConfig) -> None:
        self._fields = config.fields
        self._half_life_ms = config.half_life_s * 1000
        self._count = config.count
        self._of_last = _OF_LAST.get(config.method)
        self.initial: State = {}

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        states, smoothed, remarks = dict(state), dict(fields), []
        for name in self._fields:
            value = number(fields.get(name))
            if value is None:
                remarks.append(no_number(fields.get(name)))
                continue
            if self._of_last is not None:
                states[name] = [*states.get(name, ()), value][-self._count :]
                smoothed[name] = self._of_last(states[name])
                continue
            last_t, last = states.get(name, (t, value))
            if t < last_t:
                remarks.append(Remark.BACKWARDS)
            smooth = last + (1 - 0.5 ** (max(0, t - last_t) / self._half_life_ms)) * (value - last)
            states[name], smoothed[name] = [t, smooth], smooth
        return Stepped(states, ((t, smoothed),), remarks)
