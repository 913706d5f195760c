"""A message from the cloud as the device's log keeps it. Pure.

Its life is counted by two clocks of the device, and the one that says more holds: the wall clock,
which also counts while the machine is off but may be set, and, within one start of the machine, the
monotonic one. The wall clock tells nothing where it was not set yet when the message came
(CLOCK_FLOOR_MS): then the count starts again with each start of the machine, or the clock is set
meanwhile. Where neither can tell (that, in another start, or a wall clock that stands before the
moment at which it came), it is over: what is not done can be asked again.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.protocol.clock import CLOCK_FLOOR_MS
from edgewake.protocol.downlink.downlink import DownKind
from edgewake.protocol.names import is_device


@dataclass(frozen=True, slots=True)
class Now:
    """A moment of the device's clocks."""

    wall_ms: int
    monotonic_s: float
    boot: str
    """This start of the machine."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A message that was kept in the log."""

    id: str
    kind: str
    body: str
    """The payload as it came: UTF-8 of a message that could be read."""
    expires_s: int
    """Seconds that it had left when it came."""
    at: Now
    """When it came."""

    @property
    def thing(self) -> str:
        """The thing behind this device that it is for; empty: the device itself.

        What cannot be read names none: the device itself answers that it is refused.
        """
        try:
            found = orjson.loads(self.body)
        except ValueError:
            return ""
        name = found.get("thing") if isinstance(found, dict) else None
        return name if isinstance(name, str) and is_device(name) else ""

    @property
    def key(self) -> str:
        """What tells it from others here: ids are those of a device, or of a thing."""
        return f"{self.thing}/{self.id}" if self.thing else self.id

    def reading(self) -> Reading:
        """The message as a reading for the log."""
        return self.at.wall_ms, {
            "id": self.id,
            "kind": self.kind,
            "body": self.body,
            "expires_s": self.expires_s,
            "monotonic_s": self.at.monotonic_s,
            "boot": self.at.boot,
        }

    @classmethod
    def from_reading(cls, reading: Reading) -> Kept:
        """The reverse of `reading`.

        Raises KeyError, TypeError, ValueError, also for a kind that only a later version knows.
        """
        t, fields = reading
        at = Now(t, float(fields["monotonic_s"] or 0.0), str(fields.get("boot") or ""))
        return cls(
            str(fields["id"]),
            DownKind(str(fields["kind"])).value,
            str(fields["body"]),
            int(fields["expires_s"] or 0),
            at,
        )

    def is_over(self, now: Now) -> bool:
        """Is it too late to begin?"""
        ages_s = []
        if self.at.wall_ms >= CLOCK_FLOOR_MS:
            ages_s.append((now.wall_ms - self.at.wall_ms) / 1000)
        if now.boot and now.boot == self.at.boot:
            ages_s.append(now.monotonic_s - self.at.monotonic_s)
        return not ages_s or max(ages_s) < 0 or max(ages_s) > self.expires_s
