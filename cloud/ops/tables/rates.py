"""Records and readings a second of each stream, as the sequencer counts them for each device.

No I/O.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from edgewake.protocol.ops.device import DeviceSeen

SAMPLES: Final = 7
"""Samples that a rate is taken over: at one every five seconds 30 s."""


class StreamRates:
    """Counts `add`ed records, and rates over the last `sample`s. Transaction markers do not count.

    Where a shard of the sequencer sees more than 4096 devices between two rounds of reports it
    counts those only: a rate is a lower bound.
    """

    def __init__(self) -> None:
        self._records: Counter[str] = Counter()
        self._readings: Counter[str] = Counter()
        self._samples: deque[tuple[float, Counter[str], Counter[str]]] = deque(maxlen=SAMPLES)

    @property
    def counts(self) -> Counter[str]:
        """Stream → records since this process started."""
        return self._records

    def add(self, seen: DeviceSeen) -> None:
        """A new report of a device, with the records since its report before."""
        self._records.update(seen.streams)
        self._readings.update(seen.readings)

    def sample(self, at_s: float) -> None:
        """Remember the counts as they are at `at_s`."""
        self._samples.append((at_s, self._records.copy(), self._readings.copy()))

    def per_s(self, stream: str) -> float | None:
        """Records a second; None before two samples or where nothing was ever counted."""
        if len(self._samples) < 2 or stream not in self._records:
            return None
        (first_s, first, _), (last_s, last, _) = self._samples[0], self._samples[-1]
        return round((last[stream] - first[stream]) / (last_s - first_s), 2)

    def readings_per_s(self, stream: str) -> float | None:
        """Readings a second; None before two samples, or where the sequencer never counted them."""
        if len(self._samples) < 2 or stream not in self._readings:
            return None
        (first_s, _, first), (last_s, _, last) = self._samples[0], self._samples[-1]
        return round((last[stream] - first[stream]) / (last_s - first_s), 2)

    def all(self) -> dict[str, float | None]:
        """The rate of every stream that was counted."""
        return {stream: self.per_s(stream) for stream in self._records}
