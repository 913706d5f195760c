"""Computes records and readings a second of each stream, from the sequencer's counts. No I/O."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from edgewake.protocol.ops.device import DeviceSeen

SAMPLES: Final = 7
"""Samples over which a rate is computed: 30 s at one every five seconds."""


class StreamRates:
    """Counts `add`ed records, and computes rates over the last `sample`s.

    Transaction markers do not count. A shard of the sequencer counts at most 4096 devices between
    two rounds of reports, so a rate may be a lower bound.
    """

    def __init__(self) -> None:
        self._records: Counter[str] = Counter()
        self._readings: Counter[str] = Counter()
        self._samples: deque[tuple[float, Counter[str], Counter[str]]] = deque(maxlen=SAMPLES)

    @property
    def counts(self) -> Counter[str]:
        """Returns stream → number of records since this process started."""
        return self._records

    def add(self, seen: DeviceSeen) -> None:
        """Adds a device's report, with the records since its previous report."""
        self._records.update(seen.streams)
        self._readings.update(seen.readings)

    def sample(self, at_s: float) -> None:
        """Stores the counts at `at_s`."""
        self._samples.append((at_s, self._records.copy(), self._readings.copy()))

    def per_s(self, stream: str) -> float | None:
        """Returns records a second; None before two samples, or without any count."""
        if len(self._samples) < 2 or stream not in self._records:
            return None
        (first_s, first, _), (last_s, last, _) = self._samples[0], self._samples[-1]
        return round((last[stream] - first[stream]) / (last_s - first_s), 2)

    def readings_per_s(self, stream: str) -> float | None:
        """Returns readings a second; None before two samples, or without any count."""
        if len(self._samples) < 2 or stream not in self._readings:
            return None
        (first_s, _, first), (last_s, _, last) = self._samples[0], self._samples[-1]
        return round((last[stream] - first[stream]) / (last_s - first_s), 2)

    def all(self) -> dict[str, float | None]:
        """Returns the rate of every stream with counts."""
        return {stream: self.per_s(stream) for stream in self._records}
