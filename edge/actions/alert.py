"""An alert as an action gets it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from edgewake.edge.log.tables.codec import Reading


@dataclass(frozen=True, slots=True)
class Alert:
    """One reading of an alert stream."""

    device: str
    """This one, or the thing behind it that the alert is of."""
    stream: str
    position: int
    """In the log."""
    reading: Reading

    @property
    def id(self) -> str:
        """The alert's id: unique on this device, and equal at repeats, so receivers drop those."""
        return f"{self.device}.{self.stream}.{self.reading[0]}.{self.position}"

    def body(self) -> bytes:
        """The alert as JSON: `device`, `stream`, `t` and the reading's fields."""
        t, fields = self.reading
        return orjson.dumps({"device": self.device, "stream": self.stream, "t": t, **fields})

    def age_s(self, now_ms: int) -> float:
        """Seconds since its event time."""
        return (now_ms - self.reading[0]) / 1000
