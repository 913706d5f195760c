"""Many readers in one process of its own: they count events, check that none is missing or
repeated, and sample their age.

`python -m tests.bench.sse_clients PORT PATH CLIENTS [KEY]` connects them, each with its KEY where
there is one; `{k}` in PATH and KEY is the client's number, `{k%100}` the same modulo 100. It says
`connected` when all are answered. Then one command a line:

    measure SECONDS   prints {"deliveries_per_s", "p50_ms", "p99_ms", "live", "writes_per_s",
                      "clients"}
    check             prints {"events", "gaps", "repeats", "checked", "uneven"}
    until EVENTS      waits until each client has so many, prints {"seconds", "cpu_s" of this
                      process}

Each event has a field `n`, one more than that of the event before. Every client's events are
counted and compared with its first and last `n` (`uneven`: clients where they differ); of CHECKED
clients every `n` is read and compared with the one before. Age is the time from `sent` to its
arrival, of each read of each client. A client is live when its newest event is younger than a
second.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop

CHECKED = 10
ANSWERED_S = 120.0
"""Seconds that all may take to be answered: what is measured begins when nobody is being opened."""
NUMBER = re.compile(rb'"n":(\d+)')


class Reader(asyncio.Protocol):
    """One connection."""

    answers_at_once = True
    """Is it answered before there is an event?"""
    key = ""
    """Shown as `Authorization: Bearer`."""

    def __init__(self, path: str, *, is_checked: bool) -> None:
        self.path = path
        self._is_checked = is_checked
        self._rest = b""
        self.events = 0
        self.reads = 0
        self.first = self.last = -1
        self.gaps = self.repeats = 0
        self.newest_sent = 0.0
        self.ages_s: list[float] = []
        self.is_open = False
        self.is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True
        shown = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        words = f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        cast(asyncio.Transport, transport).write(f"{words}{shown}\r\n".encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False

    def data_received(self, data: bytes) -> None:
        self.is_answered = True
        self.reads += 1
        data = self._rest + data
        cut = data.rfind(b"\n\n") + 2
        if cut < 2:
            self._rest = data
            return
        self._rest = data[cut:]
        self.take(data[:cut])

    def take(self, data: bytes) -> None:
        """Whole events."""
        events = data.count(b'"sent":')
        if not events:
            return
        self.events += events
        if self._is_checked:
            self._check(data)
        elif self.first < 0:
            self.first = int(NUMBER.search(data)[1])  # type: ignore[index]
        at = data.rfind(b'"n":') + 4
        self.last = int(data[at : data.find(b",", at)].rstrip(b"}"))
        at = data.rfind(b'"sent":') + 7
        self.newest_sent = float(data[at : at + 17].split(b",")[0].split(b"}")[0])
        self.ages_s.append(time.time() - self.newest_sent)

    def _check(self, data: bytes) -> None:
        for found in NUMBER.findall(data):
            number = int(found)
            if self.first < 0:
                self.first = number
            elif number != self.last + 1:
                self.gaps += number > self.last
                self.repeats += number <= self.last
            self.last = number


def measured(readers: list[Reader], before: tuple[int, int], took: float) -> dict[str, float]:
    """What came since `before`."""
    now = time.time()
    ages = sorted(age for reader in readers for age in reader.ages_s)
    return {
        "deliveries_per_s": (sum(reader.events for reader in readers) - before[0]) / took,
        "writes_per_s": (sum(reader.reads for reader in readers) - before[1]) / took,
        "live": sum(now - reader.newest_sent < 1 for reader in readers),
        "clients": sum(reader.is_open for reader in readers),
        **{f"p{p}_ms": 1000 * ages[len(ages) * p // 100] if ages else -1.0 for p in (50, 99)},
    }


def checked(readers: list[Reader]) -> dict[str, int]:
    """Is anything missing or repeated?"""
    return {
        "events": sum(reader.events for reader in readers),
        "gaps": sum(reader.gaps for reader in readers),
        "repeats": sum(reader.repeats for reader in readers),
        "checked": sum(reader._is_checked for reader in readers),
        "uneven": sum(
            reader.first >= 0 and reader.last - reader.first + 1 != reader.events
            for reader in readers
        ),
    }


def numbered(text: str, number: int, clients: int) -> str:
    """A path or key of the client of this number."""
    return re.sub(r"\{k(?:%(\d+))?\}", lambda found: str(number % int(found[1] or clients)), text)


async def run(
    port: int, path: str, clients: int, make: Callable[..., Reader] = Reader, key: str = ""
) -> None:
    """Connect and obey; `make`: a reader, of its path and whether it is checked."""
    loop = asyncio.get_running_loop()
    readers = [
        make(numbered(path, i, clients), is_checked=i % max(1, clients // CHECKED) == 0)
        for i in range(clients)
    ]
    for i, reader in enumerate(readers):
        reader.key = numbered(key, i, clients)
    began, busy = time.perf_counter(), time.process_time()
    for reader in readers:
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", port)  # type: ignore[misc]
    if readers and readers[0].answers_at_once:
        until = time.perf_counter() + ANSWERED_S
        while not all(reader.is_answered for reader in readers) and time.perf_counter() < until:
            await asyncio.sleep(0.1)
    print("connected", flush=True)
    while command := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        match command:
            case "measure", seconds:
                for reader in readers:
                    reader.ages_s.clear()
                before = (
                    sum(reader.events for reader in readers),
                    sum(reader.reads for reader in readers),
                )
                start = time.perf_counter()
                await asyncio.sleep(float(seconds))
                answer: object = measured(readers, before, time.perf_counter() - start)
            case "until", events:
                while any(reader.events < int(events) for reader in readers):
                    await asyncio.sleep(0.02)
                answer = {
                    "seconds": time.perf_counter() - began,
                    "cpu_s": time.process_time() - busy,
                }
            case _:
                answer = checked(readers)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _, port_, path_, clients_, *key_ = sys.argv
    uvloop.run(run(int(port_), path_, int(clients_), key="".join(key_)))
