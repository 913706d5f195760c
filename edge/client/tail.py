"""What `edgewake tail` does: follow, print, save the cursor.

Durable first, cursor second: an event is written out before its cursor is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from rich.console import Console

from edgewake.edge.client.asked import Options, Published
from edgewake.edge.client.credentials import Credentials
from edgewake.edge.client.cursor_file import CursorFile
from edgewake.edge.client.follow import Connected, Follower, FollowError, Lost, OnGap, Received
from edgewake.edge.client.table import LiveTable, printable
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.leases.lease import Subscription

FLUSH_EVERY_S: Final = 0.05
SAVE_EVERY_S: Final = 0.5
"""Seconds between two writes of the cursor while events come; kill -9 repeats at most that much,
every other end nothing."""
ASIDE: Final = frozenset({"behind", "conflated", "gap", "warning"})
"""Kinds of events that are shown beside the data, on standard error."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What to follow and how long."""

    servers: Sequence[str]
    subscription: Subscription | Published
    start: str
    cursor_file: Path | None = None
    count: int | None = None
    on_gap: OnGap | None = None
    as_json: bool = True
    """JSON lines, not a live table."""
    credentials: Credentials | None = None
    options: Options | None = None


def run(tail: Tail) -> int:
    """Follow until the count is reached or the user ends it; return the exit code.

    2: the caller must change something; 1: a server refused.
    """
    try:
        return asyncio.run(_main(tail))
    except (FollowError, ConfigError) as error:
        _to_stderr(str(error))
        return 2 if isinstance(error, ConfigError) or error.wrong_address else 1
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
    file = CursorFile(tail.cursor_file)
    is_published = isinstance(tail.subscription, Published)
    cursor = file.read(None if is_published else tail.subscription.streams)
    output: Screen | Lines = Lines(sys.stdout) if tail.as_json else Screen(tail.subscription)
    follower = Follower(
        tail.servers,
        tail.subscription,
        cursor=cursor,
        start=tail.start,
        on_gap=tail.on_gap,
        checkpoints=True,
        options=tail.options,
        credentials=tail.credentials,
        patient=False,
        on_notice=output.notice,
    )
    shown = Shown(cursor)
    left = tail.count
    with output:
        saving = asyncio.ensure_future(_save_now_and_then(file, shown, output))
        saving.add_done_callback(_end_when_failed(asyncio.current_task()))
        try:
            async with contextlib.aclosing(follower.events()) as events:
                async for received in events:
                    output.show(received)
                    shown.cursor = received.cursor
                    if left is not None and received.kind == "" and (left := left - 1) == 0:
                        return
        finally:
            if saving.done():
                saving.result()
            saving.cancel()
            output.flush()
            file.save(shown.cursor)


@dataclass(slots=True)
class Shown:
    """The cursor after what was shown last."""

    cursor: str


def _end_when_failed(
    following: asyncio.Task[object] | None,
) -> Callable[[asyncio.Future[None]], None]:
    def end(saving: asyncio.Future[None]) -> None:
        if following is not None and not saving.cancelled():
            following.cancel()

    return end


async def _save_now_and_then(file: CursorFile, shown: Shown, output: Screen | Lines) -> None:
    """Flush what was shown, and save the cursor.

    Ends only by an error, which ends the following too.
    """
    since_saved = 0.0
    while True:
        await asyncio.sleep(FLUSH_EVERY_S)
        cursor = shown.cursor  # what comes during the flush is not flushed
        output.flush()
        since_saved += FLUSH_EVERY_S
        if since_saved >= SAVE_EVERY_S:
            since_saved = 0.0
            file.save(cursor)


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
            # Between two words of JSON, where it stands alone, both are the same.
            self._out.write(received.text.replace("\n", " ") + "\n")
        elif received.kind in ASIDE:
            _to_stderr(_beside(received))

    def notice(self, notice: Connected | Lost) -> None:
        """Print what happened to the connection."""
        _to_stderr(_sentence(notice))

    def flush(self) -> None:
        """Hand everything over to the reader."""
        self._out.flush()


class Screen:
    """A live table for people."""

    def __init__(self, subscription: Subscription | Published) -> None:
        self._table = LiveTable(subscription.streams, Console())
        self._errors = Console(stderr=True, highlight=False)

    def __enter__(self) -> Screen:
        self._table.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._table.__exit__(*exc)

    def show(self, received: Received) -> None:
        """Show an event."""
        fields = _object(received)
        if received.kind == "" and fields is not None:
            self._table.add(fields)
        elif received.kind in ASIDE or received.kind == "":
            self._errors.print(printable(_beside(received)), markup=False)

    def notice(self, notice: Connected | Lost) -> None:
        """Show how the connection is."""
        self._table.show_state(printable(_sentence(notice)))

    def flush(self) -> None:
        """Does nothing: this form does not buffer."""


def _beside(received: Received) -> str:
    """A gap as it came, a warning as its sentence."""
    detail = (_object(received) or {}).get("detail")
    return (
        f"warning: {detail}"
        if received.kind == "warning" and detail
        else f"{received.kind or 'no object'}: {received.text}"
    )


def _object(received: Received) -> Mapping[str, Any] | None:
    """What it says; None where the server wrote something else."""
    try:
        found = received.fields
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _sentence(notice: Connected | Lost) -> str:
    match notice:
        case Connected(server, start):
            return f"connected to {server} ({start or 'live'})"
        case Lost(server, why, wait_s):
            return f"lost {server}: {why}; again in {wait_s:.1f} s"


def _to_stderr(text: str) -> None:
    print(f"edgewake tail: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201
