"""The story for an hour: everything runs, one part after the other is killed, and files, memory,
lag and restarts are written down.

    make soak                 an hour, with a kill every five minutes
    make soak SECONDS=120     the same in two minutes and a little: kills and uploads of state come
                              thirty times as often

Real agents, broker, bridges, Kafka, sequencer, Spark and access servers. The ledger judges as in
the story. A table has a row for each look; the end says whether files and memory still grew in the
second half. Exit code 1 if the verdict is not clean, or files or memory are beyond their bounds
(looks.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Final

import httpx

from edgewake.simulators.clients import Follower
from edgewake.simulators.ledger import Ledger
from tests.story.feeder import Feeder
from tests.story.looks import PARTS, Look, look
from tests.story.system import OPS_KEY, System
from tests.story.test_story import QUERY, SQL, STREAM, WINDOW_MS, Notes

AGENTS: Final = ("agent-a", "agent-b", "agent-c")
PER_SECOND: Final = 20.0
VICTIMS: Final = (
    "analysis",
    "bridge-1",
    "sequencer",
    "agent-a",
    "access-1",
    "kafka",
    "analysis",
    "mosquitto",
)
"""In turn. The analysis twice: it has the most to come back to."""
HOUR_S: Final = 3600
KILLS: Final = 12
"""In the whole time, whatever it is."""
KILLS_MIN: Final = 3
"""However slow the machine is."""
LOOKS: Final = 30
MAINTENANCE_S: Final = 60
"""From one upload of the state to the next, in an hour; a shorter soak has them as many times."""
DRAIN_S: Final = 600.0
HEAD: Final = f"{'s':>7} {'files':>6} {'MiB':>7} {'lake':>6} {'lag':>7}" + "".join(
    f"{name:>11}" for name in PARTS
)


def row(at_s: float, look: Look, lag: int | None) -> str:
    """A row of the table. `lag`: offsets of the query; None while the API does not know."""
    parts = "".join(
        f"{look.rss_mib[name]:>11.0f}" if name in look.rss_mib else f"{'-':>11}" for name in PARTS
    )
    return (
        f"{at_s:>7.0f} {look.files:>6} {look.checkpoint_mib:>7.1f} {look.lake_files:>6} "
        f"{'-' if lag is None else lag:>7}{parts}"
    )


class Soak:
    """One run."""

    def __init__(self, system: System, seconds: int) -> None:
        self.system, self.seconds = system, seconds
        self.ledger = Ledger()
        self.notes = Notes(self.ledger)
        self.looks: list[Look] = []
        self.kills: dict[str, int] = {}
        self.back_s: list[tuple[str, float]] = []
        """Part → seconds from its kill until everything flowed again."""
        self._began_s = time.monotonic()

    async def look(self) -> None:
        """Write a row down."""
        found = look(self.system)
        self.looks.append(found)
        print(row(time.monotonic() - self._began_s, found, await self._lag()), flush=True)

    async def _lag(self) -> int | None:
        try:
            async with httpx.AsyncClient(timeout=5, headers={"X-API-Key": OPS_KEY}) as http:
                answer = await http.get(f"{self.system.ops_url}/v1/queries/{QUERY}")
            lag: int | None = answer.json().get("lag") if answer.status_code == 200 else None
        except (httpx.HTTPError, json.JSONDecodeError):
            return None
        return lag

    async def kill_and_restart(self, victim: str, witness: str) -> None:
        """Kill a part, start it again, and wait until readings and windows go on."""
        began_s = time.monotonic()
        self.system.kill(victim)
        await self.system.start(victim)
        written, windows = len(self.ledger.readings), len(self.ledger.windows[witness])
        await self.system.until(
            lambda: (
                len(self.ledger.deliveries[witness]) >= written
                and len(self.ledger.windows[witness]) > windows
            ),
            f"all flows again after {victim}",
            timeout_s=DRAIN_S,
            every_s=0.1,
        )
        self.kills[victim] = self.kills.get(victim, 0) + 1
        self.back_s.append((victim, time.monotonic() - began_s))

    async def run(self) -> bool:
        """Is the verdict clean?"""
        system = self.system
        system.register(QUERY, SQL)
        feeder = Feeder(
            self.ledger,
            {agent: system.input_file(agent) for agent in AGENTS},
            per_second=PER_SECOND,
        )
        await system.start(
            "access-1", "access-2", "ops", "analysis", "sequencer", "bridge-1", "bridge-2", *AGENTS
        )
        feeding = asyncio.create_task(feeder.run(), name="feeder")
        followers = [
            Follower(name, servers, [STREAM, QUERY], self.notes.on_event)
            for name, servers in (("both-1", system.servers), ("both-2", system.servers[::-1]))
        ]
        for follower in followers:
            follower.wake()
        await system.until(
            lambda: all(self.ledger.windows[one.name] for one in followers),
            "all are shown windows",
            timeout_s=DRAIN_S,
        )
        self._began_s = time.monotonic()
        print(HEAD, flush=True)
        looking = asyncio.create_task(self._look_again_and_again(), name="looks")
        await self._kill_until_the_end(followers[0].name)
        feeder.stop()
        await feeding
        for one in followers:
            missing = lambda name=one.name: (  # noqa: E731
                self.ledger.missing(name) or self.ledger.unfinished_windows(name, WINDOW_MS)
            )
            await system.until(
                lambda missing=missing: not missing(),
                f"{one.name} has everything",
                timeout_s=DRAIN_S,
                every_s=1,
            )
        assert not looking.done(), looking
        looking.cancel()
        await self.look()
        for one in followers:
            await one.sleep()
        return self._told([one.name for one in followers])

    async def _look_again_and_again(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self.seconds / LOOKS)

    async def _kill_until_the_end(self, witness: str) -> None:
        """One part after the other; on a slow machine there are fewer kills, for the next one waits
        until all flows again.
        """
        every_s = self.seconds / KILLS
        for turn, victim in enumerate(cycle(VICTIMS)):
            rest_s = max((turn + 1) * every_s - (time.monotonic() - self._began_s), every_s / 2)
            await asyncio.sleep(rest_s)
            if turn >= KILLS_MIN and time.monotonic() - self._began_s >= self.seconds:
                return
            await self.kill_and_restart(victim, witness)

    def _told(self, names: list[str]) -> bool:
        verdict = self.ledger.judge(raw_clients=names, window_clients=names, window_ms=WINDOW_MS)
        middle = len(self.looks) // 2
        first, second = self.looks[:middle], self.looks[middle:]
        for what, of in (
            ("checkpoint files", lambda one: one.files),
            ("lake files", lambda one: one.lake_files),
        ):
            print(
                f"most {what}: {max(map(of, first))} in the first half, {max(map(of, second))} in "
                "the second"
            )
        for name in PARTS:
            halves = [
                max((one.rss_mib.get(name, 0.0) for one in half), default=0.0)
                for half in (first, second)
            ]
            print(
                f"most memory of {name}: {halves[0]:.0f} MiB in the first half, {halves[1]:.0f} "
                "in the second"
            )
        too_much = [found.too_much() for found in self.looks if found.too_much()]
        print(f"beyond its bound: {too_much[-1] if too_much else 'nothing'}")
        print("restarts: " + ", ".join(f"{name} {count}" for name, count in self.kills.items()))
        print(
            "flows again after: "
            + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.back_s)
        )
        print(
            f"readings put in {len(self.ledger.readings)}, results shown "
            f"{len(self.ledger.windows[names[0]])}"
        )
        print(f"verdict: {'clean' if verdict.clean else 'NOT CLEAN'}\n{verdict}")
        return verdict.clean and not too_much


async def soak(folder: Path, seconds: int) -> bool:
    """Run it in a folder."""
    maintenance_s = max(1, MAINTENANCE_S * seconds // HOUR_S)
    analysis = f"maintenance_s = {maintenance_s}\nsummary_interval_s = {max(5, maintenance_s)}\n"
    async with System(folder, agents=AGENTS, stream=STREAM, analysis=analysis) as system:
        return await Soak(system, seconds).run()


def main() -> None:
    """`python -m tests.story.soak`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=HOUR_S, help="how long; 3600 if left out")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        sys.exit(0 if asyncio.run(soak(Path(folder), parser.parse_args().seconds)) else 1)


if __name__ == "__main__":
    main()
