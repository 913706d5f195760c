"""`python -m tests.edge.log.salvage_crash DIR`: open a damaged log again and again, and die by kill
-9 one place further each time.

A parent without threads forks one child after the other: the first dies at the first place on the
way of saving the log, the second at its second place, until one saves all there is and ends. Prints
how many died. Small steps, so that there are many places.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from pathlib import Path

from edgewake.edge.log import store as log_store
from edgewake.edge.log.event_log import EventLog
from edgewake.protocol.clock import SystemClock
from tests.edge.log.damaging import CONFIG, UPLINK
from tests.services import wait_until

PLACES = frozenset({"new log", "salvaged", "salvage ends", "salvage ended"})
DEATHS_MAX = 50


def main() -> None:
    """Deaths until there is nothing left to save."""
    directory, deaths = Path(sys.argv[1]), 0
    while not lives(directory, deaths + 1):
        deaths += 1
        assert deaths < DEATHS_MAX
    print(deaths)


def lives(directory: Path, place: int) -> bool:
    """Did a child open the log without coming to its n-th place?"""
    child = os.fork()
    if not child:
        try:
            save(directory, place)
        except BaseException:  # a child must never return into the parent's code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0


def save(directory: Path, left: int) -> None:
    """Die, or end."""
    log_store.SALVAGE_PAGES = 40  # type: ignore[misc]

    def die(place: str) -> None:
        nonlocal left
        left -= place in PLACES
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    events = EventLog(
        directory,
        CONFIG,
        UPLINK,
        clock=SystemClock(),
        rng=random.Random(left),
        boot_id="boot",
        failpoint=die,
    )
    wait_until(lambda: not events._writer.store.is_salvaging, "saved")
    events.close()


if __name__ == "__main__":
    main()
