"""Event times of wrong clocks, put right: the same for queries, SQL and readers. Pure.

By how much a device's clock is wrong the sequencer finds out and writes into each record (`shift`,
cloud/sequencer/order/clocks.py). A time after the reception of its frame is believed for
AHEAD_MS_MAX and no longer.
"""

from __future__ import annotations

from typing import Final

AHEAD_MS_MAX: Final = 300_000
"""The most by which an event time may follow its reception, ms; a later one is set to that."""


def corrected_ms(t: int, *, shift: int, received_at: int) -> int:
    """The event time of a reading, ms since 1970.

    `received_at`: of its frame, by Kafka's clock where that is known.
    """
    return min(t + shift, received_at + AHEAD_MS_MAX)


def sent_ms(sent_at: int | None, *, shift: int, received_at: int) -> int:
    """The time at which a frame was sent, ms since 1970; without one, that of its reception."""
    return received_at if sent_at is None else min(sent_at + shift, received_at)
