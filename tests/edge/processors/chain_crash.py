"""One life of a log with chains: `python -m tests.edge.processors.chain_crash DIR [--kill PLACE
NTH] [--apart] [--things]`.

A source appends N readings from where the log says that it had read to, two chains process them.
The life ends by kill -9 at the n-th passage of a place in the log's writer, or, when all is
processed, with the readings that the chains made, as JSON on standard output. `--apart` is the
control: cursor and state are committed first, and what was made after that. With `--things` the
readings are of things behind the device and of itself, mixed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.consumer import Consumer
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.processors.config import ChainConfig
from edgewake.edge.processors.processing import Processing
from edgewake.edge.things.sink import ThingSink
from edgewake.edge.things.streams import streams_of
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.names import THING
from edgewake.protocol.topics import stream_and_thing

N = 600
EVERY = 3
CHAINS = [
    ChainConfig.checked(one)
    for one in (
        {
            "stream": "speed",
            "into": "mean",
            "processor": [{"type": "window", "fields": ["x"], "size_count": EVERY}],
        },
        {
            "stream": "mean",
            "into": "high",
            "processor": [{"type": "rule", "name": "high", "when": "x_mean > 20", "for_count": 2}],
        },
        {"stream": "speed", "into": "first", "processor": [{"type": "seen", "field": "card"}]},
    )
]


OWN = ""
THINGS = (OWN, "press-1", "press-2", "kiln")
"""Who is behind the device, and the device itself."""


def readings() -> list[Reading]:
    """The whole input: as noisy as it is the same."""
    rng = random.Random(7)
    return [
        (
            1_790_000_000_000 + n * 100,
            {"x": rng.uniform(0, 40) + (n // 60 % 2) * 10, "card": f"card {n * 7 % 200}"},
        )
        for n in range(1, N + 1)
    ]


def of_things() -> list[tuple[str, Reading]]:
    """The same, each of one thing."""
    rng = random.Random(11)
    return [(rng.choice(THINGS), one) for one in readings()]


def named(thing: str, reading: Reading) -> Reading:
    """A reading as a source brings it that knows of which thing it is."""
    t, fields = reading
    return (t, {**fields, THING: thing}) if thing else reading


class Life:
    def __init__(
        self, directory: Path, place: str, nth: int, *, is_apart: bool, has_things: bool
    ) -> None:
        self.is_apart = is_apart
        self.has_things = has_things
        self._place, self._left = place, nth
        self.events = EventLog(
            directory,
            LogConfig(linger_ms=0, reserve_bytes=0),
            UplinkConfig(),
            clock=SystemClock(),
            rng=random.Random(1),
            failpoint=self._pass,
        )

    def _pass(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def run(self) -> dict[str, list[Reading]]:
        """Until everything is processed; what the chains made."""
        streams = frozenset({"speed", "mean"} if self.has_things else ())
        processing = Processing(CHAINS, self.events, streams)
        wanted = [
            stream
            for chain in CHAINS
            for stream in streams_of(chain.into, of_things=self.has_things)
        ]
        made = await self.events.consumer("check", wanted)
        found: dict[str, list[Reading]] = {chain.into: [] for chain in CHAINS}
        async with asyncio.TaskGroup() as tasks:
            chains = [tasks.create_task(chain.run()) for chain in processing.chains.values()]
            await self._bring()
            while not self._is_done(processing, found):
                await asyncio.sleep(0.01)
                for item in (await asyncio.to_thread(made.poll)).items:
                    assert isinstance(item, Received), item
                    found.setdefault(item.stream, []).extend(item.readings)
            for chain in chains:
                chain.cancel()
        await asyncio.to_thread(self.events.close)
        return found

    def _is_done(self, processing: Processing, found: Mapping[str, Sequence[Reading]]) -> bool:
        counts = processing.counts()
        if any(self.events.stream(stream).waiting for stream in found):
            return False
        made = Counter[str]()
        for stream, some in found.items():
            made[stream_and_thing(stream)[0]] += len(some)
        is_processed = counts["mean"]["in"] == N and counts["high"]["in"] == made["mean"]
        is_processed = is_processed and counts["first"]["in"] == N
        return is_processed and (
            self.is_apart or all(counts[chain.into]["out"] == made[chain.into] for chain in CHAINS)
        )

    async def _bring(self) -> None:
        at = int(self.events.position("source") or 0)
        if self.has_things:
            await self._bring_of_things(at)
            return
        speed, whole = self.events.stream("speed"), readings()
        while at < N:
            chunk = whole[at : at + 5]
            at += len(chunk)
            await speed.accepted(speed.append_all(chunk, position=("source", str(at))))

    async def _bring_of_things(self, at: int) -> None:
        sink = ThingSink(self.events, "speed", device="gw", things_max=len(THINGS))
        whole = [named(*one) for one in of_things()]
        while at < N:
            chunk = whole[at : at + 5]
            at += len(chunk)
            await sink.room()
            sink.put(chunk, ("source", str(at)), {})
            await sink.durable()


COMMIT = Consumer.commit


async def commit_apart(
    consumer: Consumer,
    cursor: Mapping[str, int],
    *,
    state: bytes | None = None,
    derived: Mapping[str, Sequence[Reading]] | None = None,
    wait: bool = True,
) -> None:
    """The control: in two transactions what belongs together."""
    await COMMIT(consumer, cursor, state=state, wait=wait or derived is not None)
    for stream, made in (derived or {}).items():
        consumer._events.stream(stream).append_all(made)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kill", nargs=2, default=("", "0"), metavar=("PLACE", "NTH"))
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--things", action="store_true")
    given = parser.parse_args()
    if given.apart:
        Consumer.commit = commit_apart  # type: ignore[method-assign]
    place, nth = given.kill

    async def live() -> dict[str, list[Reading]]:
        life = Life(given.directory, place, int(nth), is_apart=given.apart, has_things=given.things)
        return await life.run()

    print(orjson.dumps(asyncio.run(live())).decode())


if __name__ == "__main__":
    main()
