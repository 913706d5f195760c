"""One life of a log with an action: `python -m tests.edge.actions.action_crash DIR ALERTS KILL`.

The action appends the alert to a file. Alerts 0 to ALERTS-1 are raised where they were not yet. The
life ends by kill -9 at place KILL (`begun`: durable and not yet acted; `acted`: done and not yet
noted), or when nothing is left, with the counts on standard output.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import orjson

from tests.edge.actions.helpers import config, raised, runs, until
from tests.edge.helpers import opened


async def live(directory: Path, alerts: int, kill: str) -> None:
    """One life."""
    done = directory / "done"
    one = config(
        type="command",
        command=["/bin/sh", "-c", f"cat >> {done}; echo >> {done}"],
        expire_s=3600,
        user="root",
    )
    passed = 0

    def failpoint(place: str) -> None:
        nonlocal passed
        passed += place == kill
        if passed == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    with opened(directory) as events:
        async with runs(events, one, failpoint=failpoint) as runner:
            if not events._writer.store.last("alerts"):
                await raised(events, *range(alerts))
            await until(
                lambda: sum(v for v in runner.counts().values() if isinstance(v, int)) >= alerts
            )
            print(orjson.dumps(runner.counts()).decode())


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
