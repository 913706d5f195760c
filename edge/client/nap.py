"""What `edgewake sleep` does: read to the live end, sleep until woken, read on.

Durable first, cursor second: an event is written out before its cursor is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from edgewake.edge.client.asked import ALL, Options, Published
from edgewake.edge.client.credentials import Credentials
from edgewake.edge.client.cursor_file import CursorFile
from edgewake.edge.client.follow import FollowError, Lost
from edgewake.edge.client.lease import WakeUp
from edgewake.edge.client.pages import Page, Pages
from edgewake.edge.client.sleeper import Sleeper
from edgewake.edge.client.table import printable
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.leases.lease import Subscription, WakePolicy

MARK: Final = b'"$event"'
"""A name that every event has which does not hold a reading."""
END_S: Final = 5.0
"""Seconds for ending a lease that the next run would not find."""


@dataclass(frozen=True, slots=True)
class Nap:
    """What to read, and when to be woken for it."""

    servers: Sequence[str]
    proxies: Sequence[str]
    subscription: Subscription | Published
    wake: WakePolicy
    ttl_s: int
    start: str
    cursor_file: Path | None = None
    """Keeps the cursor, and the lease beside it."""
    once: bool = False
    """End once something was read."""
    credentials: Credentials | None = None
    options: Options = ALL
    """Its devices, and a share of them."""

    @property
    def lease_file(self) -> Path | None:
        """Where the lease is kept."""
        return None if self.cursor_file is None else Path(f"{self.cursor_file}.lease")


def run(nap: Nap) -> int:
    """Read and sleep until the user ends it; return the exit code.

    2: the caller must change something; 1: a server refused.
    """
    try:
        return asyncio.run(_main(nap))
    except (FollowError, ConfigError) as error:
        _to_stderr(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


async def _main(nap: Nap) -> int:
    sleeping = asyncio.ensure_future(_sleep(nap))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, sleeping.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await sleeping
    return 0


async def _sleep(nap: Nap) -> None:
    file = CursorFile(nap.cursor_file)
    is_published = isinstance(nap.subscription, Published)
    cursor = file.read(None if is_published else nap.subscription.streams)
    pages = Pages(
        nap.servers,
        nap.subscription,
        options=nap.options,
        start=nap.start,
        credentials=nap.credentials,
        on_notice=_notice,
    )
    sleeper = Sleeper(
        nap.proxies,
        nap.subscription,
        options=nap.options,
        wake=nap.wake,
        ttl_s=nap.ttl_s,
        place=nap.lease_file,
        credentials=nap.credentials,
        on_notice=_notice,
    )
    try:
        while True:
            shown = 0
            async with contextlib.aclosing(pages.read(cursor)) as reading:
                async for page in reading:
                    shown += _show(page)
                    cursor = page.cursor
                    file.save(cursor)
            if nap.once and shown:
                return
            _to_stderr("asleep")
            _to_stderr(_woken(await sleeper.sleep(cursor)))
    finally:
        if nap.lease_file is None:  # nobody would find it again
            with contextlib.suppress(FollowError, TimeoutError):
                async with asyncio.timeout(END_S):
                    await sleeper.end()


def _show(page: Page) -> int:
    """Write the readings out, and what else came to standard error; how many readings."""
    shown = 0
    for line in page.lines:
        kind = orjson.loads(line).get("$event") if MARK in line else None
        if kind is None:
            shown += 1
            sys.stdout.buffer.write(line + b"\n")
        elif kind in ("gap", "warning"):
            _to_stderr(f"{kind}: {line.decode('utf-8', 'replace')}")
    sys.stdout.buffer.flush()
    return shown


def _woken(woken: WakeUp) -> str:
    if woken.ended:
        return f"woken: the lease has ended: {woken.ended}"
    more = " or more" if woken.is_capped else ""
    gap = "; part of what came is lost" if woken.gap else ""
    return f"woken: {woken.count}{more} events wait{gap}"


def _notice(notice: Lost) -> None:
    _to_stderr(f"lost {notice.server}: {notice.why}; again in {notice.wait_s:.1f} s")


def _to_stderr(text: str) -> None:
    print(f"edgewake sleep: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201
