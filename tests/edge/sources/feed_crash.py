"""One life of a device that follows others: `python -m tests.edge.sources.feed_crash DIR [--kill
PLACE NTH] [--apart] [--things]`.

The cloud has N events, and answers a question with the seven that follow its cursor. The life ends
by kill -9 at the n-th passage of a place in the log's writer, or, when all is here, with the events
and gaps of all lives as JSON on standard output. `--apart` is the control: the cursor is kept after
the events and not together with them, and a gap is said like any loss; the place between is called
`apart`. With `--gone K` the cloud no longer keeps the events before K, and says so in a chunk of
its own. With `--things` the events are of things, whose feed a gateway follows for them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from edgewake.edge.downlink.feeds import Feeds
from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake import Intake, LogSink, Sink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed, Received
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.subscription import Subscription, SubscriptionConfig
from edgewake.edge.things.sink import ThingSink
from edgewake.edge.things.streams import streams_of
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.feed import FeedAsk, FeedChunk, decode
from edgewake.protocol.names import THING
from edgewake.protocol.topics import stream_and_thing

N = 40
THINGS = ("press-1", "press-2", "kiln")


def thing_of(n: int) -> str:
    """The thing that an event is of."""
    return THINGS[n % 7 % len(THINGS)]


class Life:
    def __init__(
        self, directory: Path, place: str, nth: int, gone: int, *, has_things: bool
    ) -> None:
        self._gone = gone
        self._has_things = has_things
        self._place, self._left = place, nth
        clock = SystemClock()
        self.events = EventLog(
            directory, LogConfig(linger_ms=0, reserve_bytes=0), UplinkConfig(), clock=clock,
            rng=random.Random(1), failpoint=self.reach
        )  # fmt: skip
        sink: Sink = LogSink(self.events.stream("s"))
        if has_things:
            sink = ThingSink(self.events, "s", device="gw", things_max=len(THINGS))
        book = FieldBook(renamed={"of_device": THING} if has_things else {})
        self.intake = Intake("feed", sink, Policy.BLOCK, clock, book=book)
        self.feeds = Feeds()
        self.feeds.send = self._answer
        self._is_all_asked = asyncio.Event()
        config = SubscriptionConfig(
            type="subscription", stream="s", follow=("speed",), begin="earliest"
        )
        self.source = Subscription(
            config, SourceContext("d", clock, self.events.position, self.feeds)
        )

    def reach(self, place: str) -> None:
        """A place was passed."""
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _answer(self, payload: bytes) -> bool:
        ask = decode(FeedAsk, payload)
        begin = int(ask.after or 0)
        if begin == N:
            self._is_all_asked.set()
        elif begin + 1 < self._gone:
            gap = {"scope": "cursor", "reason": "retention", "lost": self._gone - 1 - begin}
            chunk = FeedChunk(feed="s", after=ask.after, cursor=str(self._gone - 1), gaps=(gap,))
            self.feeds.take(chunk.to_json(), lambda _reason: None)
        else:
            end = min(begin + 7, N)
            events = tuple({"n": n, "device": thing_of(n)} for n in range(begin + 1, end + 1))
            chunk = FeedChunk(feed="s", after=ask.after, cursor=str(end), events=events)
            self.feeds.take(chunk.to_json(), lambda _reason: None)
        return True

    async def run(self) -> list[object]:
        """Until all is here; the events of all lives, in order, of things with their names."""
        wanted = streams_of("s", of_things=self._has_things)
        consumer = await self.events.consumer("check", wanted)
        running = asyncio.create_task(self.source.run(self.intake))
        await asyncio.wait(
            {running, asyncio.ensure_future(self._is_all_asked.wait())},
            return_when=asyncio.FIRST_COMPLETED,
        )
        running.cancel()
        await asyncio.wait({running})
        items = (await asyncio.to_thread(consumer.poll)).items
        await asyncio.to_thread(self.events.close)
        return [one for item in items for one in _shown(item)]


def _shown(item: Received | Missed) -> list[object]:
    if isinstance(item, Missed):
        return [f"{item.reason} {item.count}"]
    thing = stream_and_thing(item.stream)[1]
    numbers = [fields["n"] for _, fields in item.readings]
    return [(thing, n) for n in numbers] if thing else [*numbers]


def put_apart(life: Life) -> None:
    """The control."""
    put = life.intake.put

    async def first_one_then_the_other(
        readings: Sequence[Reading],
        *,
        position: tuple[str, str] | None = None,
        lost: Mapping[str, int],
    ) -> None:
        if lost:
            await put([], position=position)
            await life.intake.durable()
            life.intake._sink.lose(sum(lost.values()), *lost)
            return
        await put(readings)
        await life.intake.durable()
        life.reach("apart")
        await put([], position=position)

    life.intake.put = first_one_then_the_other  # type: ignore[method-assign]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kill", nargs=2, default=("", "0"), metavar=("PLACE", "NTH"))
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--things", action="store_true")
    parser.add_argument("--gone", type=int, default=0, metavar="K")
    given = parser.parse_args()

    async def live() -> list[object]:
        place, nth = given.kill
        life = Life(given.directory, place, int(nth), given.gone, has_things=given.things)
        if given.apart:
            put_apart(life)
        return await life.run()

    print(orjson.dumps(asyncio.run(live())).decode())


if __name__ == "__main__":
    main()
