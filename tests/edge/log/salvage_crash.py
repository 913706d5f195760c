"""`python -m tests.edge.log.salvage_crash DIR N`: open a damaged log and die by kill -9 at the n-th place on the way of saving it.

Exit 0 where all was saved before. Small steps, so that there are many places.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from edgewake.edge.log import store as log_store
from edgewake.edge.log.event_log import EventLog
from edgewake.protocol.clock import SystemClock
from tests.edge.log.damage import CONFIG, UPLINK
from tests.services import wait_until

PLACES = frozenset({"new log", "salvaged", "salvage ends", "salvage ended"})


def main() -> None:
    """Die, or end."""
    directory, left = Path(sys.argv[1]), int(sys.argv[2])
    log_store.SALVAGE_PAGES = 40  # type: ignore[misc]

    def die(place: str) -> None:
        nonlocal left
        left -= place in PLACES
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    events = EventLog(directory, CONFIG, UPLINK, clock=SystemClock(), rng=random.Random(left), boot_id="boot", failpoint=die)
    wait_until(lambda: not events._writer.store.is_salvaging, "saved")
    events.close()


if __name__ == "__main__":
    main()
