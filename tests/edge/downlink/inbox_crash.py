"""One life of a device's inbox: `python -m tests.edge.downlink.inbox_crash DIR [--kill PLACE NTH]
[--hasty | --forgetful | --apart]`.

The cloud sends what was not confirmed to the broker, as often as it takes. Each command adds its id
to the file `effects`; the one called `die` kills the agent after that. The life ends by kill -9 at
the n-th passage of a place in the log's writer or in that command, or, when all that is here is
done, with all answers and all replies as JSON on standard output. `--hasty` is a control: the
broker is told before the log has it. `--forgetful` is another one: what is begun is not noted. The
third is `--apart`: a reply is kept by itself, not together with the note that it is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import orjson

from edgewake.edge.downlink.config import CommandConfig, DownlinkConfig
from edgewake.edge.downlink.downlink import Downlink
from edgewake.edge.downlink.inbox import CONSUMER, INBOX, Done, Inbox
from edgewake.edge.downlink.kept import Kept
from edgewake.edge.downlink.ledger import Ledger, Step
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.downlink import ANSWERS, REPLIES

N = 12
REPLIES_N = 4
"""Replies among the commands."""
DIES = "id-5"


class Life:
    def __init__(self, directory: Path, place: str, nth: int) -> None:
        self._directory = directory
        self._place, self._left = place, nth
        clock = SystemClock()
        self.events = EventLog(
            directory, LogConfig(linger_ms=0, reserve_bytes=0), UplinkConfig(), clock=clock,
            rng=random.Random(1), failpoint=self._pass
        )  # fmt: skip
        script = f'echo "$0" >> {directory}/effects'
        commands = {
            "note": CommandConfig(argv=("/bin/sh", "-c", script), args_max=1),
            "die": CommandConfig(
                argv=("/bin/sh", "-c", f"{script}; kill -9 {os.getpid()}; sleep 100"), args_max=1
            ),
        }
        self.inbox = Inbox(self.events, clock, boot="boot")
        self.downlink = Downlink(DownlinkConfig(command=commands, requests=True), self.inbox)

    def _pass(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def run(self) -> list[dict[str, object]]:
        """Until all is done; the answers and the replies of all lives."""
        check = await self.events.consumer("check", [ANSWERS, REPLIES])
        found: list[dict[str, object]] = []
        await self.inbox.open()
        running = asyncio.create_task(self.downlink.run())
        for number in range(N):
            self._send(f"id-{number}")
            if number < REPLIES_N:
                self._send(f"reply-{number}")
            await asyncio.sleep(0.002 * (number % 3))
        while not self._is_done():
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.wait({running})
        for item in (await asyncio.to_thread(check.poll)).items:
            assert isinstance(item, Received), item
            found += [{"stream": item.stream, **fields} for _, fields in item.readings]
        await asyncio.to_thread(self.events.close)
        return found

    def _send(self, key: str) -> None:
        confirmed = self._directory / "confirmed"
        if confirmed.exists() and key in confirmed.read_text().split():
            return

        def acknowledge(reason: int) -> None:
            assert reason == 0
            with confirmed.open("a") as file:
                file.write(key + "\n")

        if key.startswith("reply-"):
            self.inbox.take(
                "reply",
                orjson.dumps({"id": key, "state": "answered", "body": key}),
                3600,
                acknowledge,
            )
            return
        name = "die" if key == DIES else "note"
        self.inbox.take(
            "command", orjson.dumps({"id": key, "name": name, "args": [key]}), 3600, acknowledge
        )

    def _is_done(self) -> bool:
        store = self.events._writer.store
        at = store.consumer(CONSUMER)
        return not self.inbox._waiting and at is not None and at.cursor[INBOX] == store.last(INBOX)


TAKE = Inbox.take
DO = Downlink._do


def take_hastily(
    inbox: Inbox,
    kind: str,
    payload: bytes,
    expires_s: int | None,
    acknowledge: Callable[[int], None],
) -> None:
    """The control: confirmed as soon as it is here."""
    acknowledge(0)
    TAKE(inbox, kind, payload, expires_s, lambda _reason: None)


async def do_apart(downlink: Downlink, kept: Kept) -> Done | None:
    """The control: the reply is durable, and that it is kept is not yet."""
    done = await DO(downlink, kept)
    if done is not None and done.derived:
        stream = downlink.inbox._events.stream(REPLIES)
        await stream.accepted(stream.append(done.derived[REPLIES][0]))
        downlink.inbox._events._writer._failpoint("apart")
        return Done(done.answer)
    return done


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kill", nargs=2, default=("", "0"), metavar=("PLACE", "NTH"))
    parser.add_argument("--hasty", action="store_true")
    parser.add_argument("--forgetful", action="store_true")
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    if given.hasty:
        Inbox.take = take_hastily  # type: ignore[method-assign]
    if given.apart:
        Downlink._do = do_apart  # type: ignore[method-assign]
    if given.forgetful:
        encode = Ledger.encode
        Ledger.encode = lambda self: encode(
            Ledger({k: s for k, s in self._steps.items() if s is Step.DONE})
        )  # type: ignore[method-assign]
    place, nth = given.kill

    async def live() -> list[dict[str, object]]:
        return await Life(given.directory, place, int(nth)).run()

    print(orjson.dumps(asyncio.run(live())).decode())


if __name__ == "__main__":
    main()
