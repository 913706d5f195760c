"""Reads a page of events for a client: alone, or once for all who wait at the same place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from edgewake.cloud.access.bounded import answer
from edgewake.cloud.access.bounded.answer import Bounds
from edgewake.cloud.access.bounded.read import BoundedRead
from edgewake.cloud.access.bounded.shared import SharedReads, ShowSoFar
from edgewake.cloud.access.open_streams import OpenStream, OpenStreams
from edgewake.cloud.access.reports.lease_reports import LeaseReport, LeaseReports
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import Request
from edgewake.cloud.log.subscription import Plan, Sight, Start
from edgewake.cloud.log.subscription import sight as sight_of
from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.clock import Clock

TOGETHER_S: Final = 0.5
"""Seconds that a page may come before its time, or after it, where another one began to wait."""


class Pages:
    """The pages that one server reads."""

    def __init__(self, hub: Hub, streams: OpenStreams, leases: LeaseReports, clock: Clock) -> None:
        self._hub, self._streams, self._leases, self._clock = hub, streams, leases, clock
        self._shared = SharedReads()

    async def read(
        self,
        stream: OpenStream,
        asked: Request,
        lease: tuple[str, str] | None,
        bounds: Bounds,
        reader: Principal,
    ) -> answer.Page:
        """The page; raises what opening a stream raises.

        `lease`: id and token of the lease whose client reads.
        """
        asked = await self._hub.resolved(asked, reader)
        sight = sight_of(asked.subscription, reader)
        self._streams.claim(stream, sight)
        if lease is None and asked.cursor is not None and bounds.wait_s > 0:
            self._streams.admit(stream, replays=True)
            return await self._read_together(stream, asked, sight, bounds, reader)
        return await self._read_alone(stream, asked, lease, bounds, reader)

    async def _read_together(
        self,
        stream: OpenStream,
        asked: Request,
        sight: Sight,
        bounds: Bounds,
        reader: Principal,
    ) -> answer.Page:
        """A page that is read once for all who see the same and wait at the same place."""
        is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not is_over.done():
                is_over.set_result(None)

        stream.call_at_end(end)
        until_s = self._clock.monotonic_s() + bounds.wait_s
        while True:
            left_s = max(0.0, until_s - self._clock.monotonic_s())
            page = await self._shared.page(
                (asked, sight, bounds),
                partial(
                    self._read_alone, None, asked, None, replace(bounds, wait_s=left_s), reader
                ),
                is_over,
                wait_s=left_s + TOGETHER_S,
            )
            if page is None:
                return answer.Page((), asked.cursor or "", live=False, is_whole=False)
            left_s = until_s - self._clock.monotonic_s()
            if is_over.done() or page.events or not page.live or left_s <= TOGETHER_S:
                return page

    async def _read_alone(
        self,
        stream: OpenStream | None,
        asked: Request,
        lease: tuple[str, str] | None,
        bounds: Bounds,
        reader: Principal,
        show: ShowSoFar | None = None,
    ) -> answer.Page:
        """Read a page; `stream` is None where several wait for it, `show` says how it stands."""
        async with _planned(self._hub, asked, reader) as (plan, start):
            if stream is not None:
                self._streams.admit(stream, replays=start.how != "latest")
            if start.how == "stopped":
                return answer.Page((), asked.cursor or "", live=False)
            reading = BoundedRead(
                self._hub,
                plan,
                start,
                asked.on_gap,
                bounds=bounds,
                pace=asked.pace,
                clock=self._clock,
            )
            if stream is not None:
                stream.call_at_end(reading.end)
            if show is not None:
                show(reading.so_far)
            cursor = self._hub.codec.encode(plan.cursor(start.positions))
            report = (
                None
                if lease is None
                else LeaseReport(self._leases, lease, plan.subscription.streams, cursor)
            )
            if report is not None:
                report.start()
            try:
                return await reading.page()
            finally:
                if report is not None:
                    report.end()


@asynccontextmanager
async def _planned(
    hub: Hub, asked: Request, reader: Principal
) -> AsyncIterator[tuple[Plan, Start]]:
    plan = await hub.open(asked.subscription, reader)
    try:
        yield plan, await hub.start(plan, asked)
    finally:
        hub.close(plan)
