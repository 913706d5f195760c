"""What a log reports of itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from edgewake.edge.log.state import LogState


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The state of the log and its counters."""

    state: LogState
    epoch: int
    backlog_readings: int
    """Places that the cloud knows nothing of yet: of readings that wait, and of some that were
    given up meanwhile (`given_up_readings`)."""
    stored_bytes: int
    oldest_at: int | None
    """Wall clock in ms at which the oldest reading that is not acknowledged was accepted."""
    lost: dict[str, int]
    """Readings given up since the log was made, by reason: quota, age, corrupt, not_logged,
    rejected, queue_full, refused, …"""
    unset_clock_readings: int = 0
    """Readings that were sent with times from before the machine's clock was set, since the log was
    made."""
    given_up_readings: int = 0

    @property
    def waiting_readings(self) -> int:
        """Readings that are here and that the cloud does not have."""
        return max(0, self.backlog_readings - self.given_up_readings)

    @property
    def lost_readings(self) -> int:
        """The sum of all lost readings."""
        return sum(self.lost.values())
