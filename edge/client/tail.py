"""What `edgewake tail` does: follow, print, keep the place. Durable first, cursor second: an event is written out before its cursor is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console

from edgewake.edge.client.follow import Connected, Follower, FollowError, Lost, Received
from edgewake.edge.client.table import LiveTable
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.lease import Subscription

FLUSH_EVERY_S: Final = 0.05
KEEP_EVERY_S: Final = 0.5
"""How often the place is written while events come; kill -9 repeats at most so much, every other end nothing."""
CURSOR_CHARS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Tail:
    """What to follow and how long."""

    servers: Sequence[str]
    subscription: Subscription
    start: str
    cursor_file: Path | None = None
    count: int | None = None


def run(tail: Tail) -> int:
    """Follow until the count is reached or somebody ends it; the exit code."""
    try:
        return asyncio.run(_main(tail))
    except (FollowError, ConfigError) as error:
        print(f"edgewake tail: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


async def _main(tail: Tail) -> int:
    following = asyncio.ensure_future(_follow(tail))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, following.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await following
    return 0


async def _follow(tail: Tail) -> None:
    place = Place(tail.cursor_file)
    screen: Screen | Lines = Screen(tail.subscription) if sys.stdout.isatty() else Lines(sys.stdout)
    follower = Follower(tail.servers, tail.subscription, cursor=place.read(), start=tail.start, on_notice=screen.notice)
    left = tail.count
    with screen:
        keeping = asyncio.ensure_future(_keep(place, follower, screen))
        keeping.add_done_callback(_ender(asyncio.current_task()))
        try:
            async with contextlib.aclosing(follower.events()) as events:
                async for received in events:
                    screen.show(received)
                    if left is not None and received.kind == "" and (left := left - 1) == 0:
                        follower.cursor = received.cursor
                        return
        finally:
            if keeping.done():
                keeping.result()
            keeping.cancel()
            screen.flush()
            place.write(follower.cursor)


def _ender(following: asyncio.Task[object] | None) -> Callable[[asyncio.Future[None]], None]:
    def end(keeping: asyncio.Future[None]) -> None:
        if following is not None and not keeping.cancelled():
            following.cancel()

    return end


async def _keep(place: Place, follower: Follower, screen: Screen | Lines) -> None:
    """Flush what was shown, and keep the place now and then. Ends only by an error, which ends the following too."""
    since_kept = 0.0
    while True:
        await asyncio.sleep(FLUSH_EVERY_S)
        screen.flush()
        since_kept += FLUSH_EVERY_S
        if since_kept >= KEEP_EVERY_S:
            since_kept = 0.0
            place.write(follower.cursor)


class Place:
    """The cursor in a file, replaced as a whole. Without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written = ""

    def read(self) -> str:
        """The cursor kept last time, or nothing. Raises ConfigError."""
        if self._path is None or not self._path.exists():
            return ""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path}: cannot be read: {error}") from error
        if len(text) > CURSOR_CHARS_MAX or not text.isprintable():
            raise ConfigError(f"{self._path}: is not a cursor; remove it to begin anew")
        self._written = text
        return text

    def write(self, cursor: str) -> None:
        """Keep a cursor. Raises ConfigError."""
        if self._path is None or not cursor or cursor == self._written:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w") as out:
                out.write(cursor + "\n")
                out.flush()
                os.fsync(out.fileno())
            new.replace(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._written = cursor


class Lines:
    """JSON lines for programs; what is not data goes to standard error."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def show(self, received: Received) -> None:
        """Print an event."""
        if received.kind == "":
            self._out.write(received.text + "\n")
        elif received.kind == "gap":
            _say(f"gap: {received.text}")

    def notice(self, notice: Connected | Lost) -> None:
        """Print what happened to the connection."""
        _say(_sentence(notice))

    def flush(self) -> None:
        """Hand everything over to the reader."""
        self._out.flush()


class Screen:
    """A live table for people."""

    def __init__(self, subscription: Subscription) -> None:
        self._table = LiveTable(", ".join(subscription.streams), Console())
        self._errors = Console(stderr=True, highlight=False)

    def __enter__(self) -> Screen:
        self._table.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._table.__exit__(*exc)

    def show(self, received: Received) -> None:
        """Show an event."""
        if received.kind == "":
            self._table.add(received.fields)
        elif received.kind == "gap":
            self._errors.print(f"gap: {received.text}", markup=False)

    def notice(self, notice: Connected | Lost) -> None:
        """Show how the connection is."""
        self._table.say(_sentence(notice))

    def flush(self) -> None:
        """Nothing waits here."""


def _sentence(notice: Connected | Lost) -> str:
    match notice:
        case Connected(server, start):
            return f"connected to {server} ({start or 'live'})"
        case Lost(server, why, wait_s):
            return f"lost {server}: {why}; again in {wait_s:.1f} s"


def _say(text: str) -> None:
    print(f"edgewake tail: {text}", file=sys.stderr, flush=True)  # noqa: T201
