"""Forgets consumers that the configuration no longer names.

Their unread readings would be kept for nobody, up to `log.consumer_bytes`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edgewake.edge.log.event_log import EventLog

log = logging.getLogger("edgewake.log")

ACTIONS: Final = "action "
ABSENCES: Final = "absence "
SKETCHES: Final = "sketch "
CHAINS: Final = "chain "
"""What the names of consumers of one kind begin with."""
REQUESTS: Final = "requests"
"""The name of the one that keeps the book of requests."""


async def forget_others(events: EventLog, prefix: str, wanted: Collection[str]) -> None:
    """Remove the consumers whose name begins with `prefix`, but the wanted ones.

    Raises LogClosedError, sqlite3.Error.
    """
    for name in sorted(events.consumers() - set(wanted)):
        if name.startswith(prefix):
            await events.forget_consumer(name)
            log.info(
                "%s is no longer configured",
                name,
                extra={"event": "consumer.forgotten", "consumer": name},
            )
