"""One life of a log with sketches: `python -m tests.edge.sketches.sketch_crash DIR PLACE NTH
[--ahead]`.

A source appends what `readings` says; the life ends by kill -9 at the n-th passage of a place in
the log's writer, or, when the last window was sent, with the sketches as JSON on standard output.
`--ahead` is the control: the cursor moves with every chunk.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sketches.sketching import Sketcher
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.sketches.sketch import STREAM
from tests.edge.helpers import opened

N, WINDOWS = 600, 6
CONFIG = SketchConfig.checked(
    {
        "stream": "noise",
        "fields": ["db", "street"],
        "kinds": ["numbers", "hll", "theta", "kll", "top", "count_min"],
        "window_s": 1,
    }
)
T0 = 1_790_000_000_000


def readings() -> list[Reading]:
    """The whole input; the last reading is after the last window."""
    rng = random.Random(5)
    found: list[Reading] = [
        (T0 + n * 10, {"db": rng.gauss(60, 9), "street": f"street {rng.randrange(1, 30)}"})
        for n in range(N)
    ]
    return [*found, (T0 + WINDOWS * 1000, {"other": 1})]


async def live(directory: Path, place: str, nth: int, *, ahead: bool) -> list[Reading]:
    """One life; the sketches."""
    left = nth

    def failpoint(passed: str) -> None:
        nonlocal left
        left -= passed == place
        if passed == place and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with opened(directory, failpoint=failpoint, local=frozenset({"noise", STREAM})) as events:
        check = await events.consumer("check", [STREAM])
        sketcher = Sketcher(CONFIG, events, SystemClock(), random.Random(1))
        consumer = await sketcher.open()
        task = asyncio.create_task(sketcher.run())
        noise, whole = events.stream("noise"), readings()
        at = int(events.position("source") or 0)
        while at < len(whole):
            chunk = whole[at : at + 40]
            at += len(chunk)
            await noise.accepted(noise.append_all(chunk, position=("source", str(at))))
            if ahead:
                await consumer.commit((await consumer.read()).cursor)
        found: list[Reading] = []
        # All of a window come together.
        while not any(t == T0 + (WINDOWS - 1) * 1000 for t, _ in found):
            found += [
                one
                for item in (await check.read()).items
                if isinstance(item, Received)
                for one in item.readings
            ]
        task.cancel()
        await asyncio.wait({task})
    return found


if __name__ == "__main__":
    print(
        orjson.dumps(
            asyncio.run(
                live(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), ahead="--ahead" in sys.argv)
            )
        ).decode()
    )
