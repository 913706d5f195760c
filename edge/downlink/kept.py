"""A message from the cloud as the device's log keeps it. Pure.

Its life is counted by two clocks of the device, and the one that says more holds: the wall clock, which also counts while the machine is
off but may be set, and, within one start of the machine, the monotonic one. Where neither can tell (the wall clock stands before the
moment at which it came), it is over: what is not done can be asked again.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewake.edge.log.codec import Reading


@dataclass(frozen=True, slots=True)
class Now:
    """A moment of the device's clocks."""

    wall_ms: int
    monotonic_s: float
    boot: str
    """This start of the machine."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One message."""

    id: str
    kind: str
    body: str
    """The payload as it came: UTF-8 of a message that could be read."""
    expires_s: int
    """Seconds that it had left when it came."""
    at: Now
    """When it came."""

    def reading(self) -> Reading:
        """For the log."""
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
        """The reverse of `reading`. Raises KeyError, TypeError, ValueError."""
        t, fields = reading
        at = Now(t, float(fields["monotonic_s"] or 0.0), str(fields.get("boot") or ""))
        return cls(str(fields["id"]), str(fields["kind"]), str(fields["body"]), int(fields["expires_s"] or 0), at)

    def is_over(self, now: Now) -> bool:
        """Is it too late to begin?"""
        ages_s = [(now.wall_ms - self.at.wall_ms) / 1000]
        if now.boot and now.boot == self.at.boot:
            ages_s.append(now.monotonic_s - self.at.monotonic_s)
        return max(ages_s) < 0 or max(ages_s) > self.expires_s
