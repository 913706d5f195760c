"""Gives readings to devices of its own, reads what comes out, and writes down how it stands.

Four plain devices, `ledger-1` and on, each send two readings a second; one client reads their
stream and a query of ten-second windows over it at an access server. How it stands is written to a
file twice a second. Numbers begin with each start: `epoch` is its second, and what an earlier start
sent is not looked at.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.faults import Verdict
from edgewake.simulators.clients import Event, Follower
from edgewake.simulators.outbox import Message, Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from edgewake.simulators.witness.standing import Row, Standing

log = logging.getLogger("edgewake.ledger")

STREAM: Final = "fault_ledger"
QUERY: Final = "fault_ledger_10s"
WINDOW_MS: Final = 10_000
LATENESS_MS: Final = 120_000
"""The query waits so long: longer than a part that was killed is away."""
SQL: Final = """-- name: fault_ledger_10s
-- description: What the ledger of `edgewake up --faults` can add up by itself.
-- lateness: 2 minutes
SELECT device, count(*) AS readings, sum(value) AS total, min(value) AS low, max(value) AS high
FROM fault_ledger
GROUP BY window(event_time, '10 seconds'), device
"""
DEVICES: Final = tuple(f"ledger-{i}" for i in range(1, 5))
INTERVAL_S: Final = 0.5
WAITING_MAX: Final = 3_600
"""Readings that a device keeps while nobody acknowledges: half an hour; then it is given none."""
WRITE_S: Final = 0.5
ASK_S: Final = 10.0
"""Seconds for one answer of the operations API."""
REGISTER_S: Final = 1.0
"""Between two attempts to register the query; its stream is there when a reading came."""
REFUSALS_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class WitnessPlan:
    """The addresses and files that a witness uses."""

    broker: Broker
    access: tuple[str, int]
    ops_url: str
    key: str
    """The key of the operations API; it may register a query."""
    out: Path
    """The file of the verdict."""


class Witness:
    """See above."""

    def __init__(self, plan: WitnessPlan, *, clock: Clock, rng: random.Random) -> None:
        self._plan = plan
        self._clock = clock
        self._rng = rng
        self._epoch = clock.now_ms() // 1000
        begin_ms = clock.now_ms()
        self.standing = Standing(window_ms=WINDOW_MS, late_ms=LATENESS_MS, begin_ms=begin_ms)
        self.devices = {name: self._device(name) for name in DEVICES}
        self._reader = Follower(
            "ledger", [plan.access], [STREAM, QUERY], self._on_event, start="earliest"
        )

    def _device(self, name: str) -> PlainDevice:
        return PlainDevice(
            name,
            self._plan.broker,
            Outbox(window=2, lane_window=2, capacity=WAITING_MAX),
            clock=self._clock,
            rng=self._rng,
            on_change=lambda _: None,
            on_refused=self._on_refused,
        )

    async def run(self) -> None:
        """Give, read and judge until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number, (name, device) in enumerate(self.devices.items()):
                tasks.create_task(device.run(), name=f"{name} connection")
                phase_s = INTERVAL_S * number / len(self.devices)
                tasks.create_task(self._give(name, device, phase_s), name=f"{name} readings")
            tasks.create_task(self._write(), name="verdict")
            await self._register()
            log.info("the ledger gives and reads", extra={"event": "part.ready", "stream": STREAM})
            self._reader.wake()
            tasks.create_task(self._watch_reader(), name="reader")

    async def _give(self, name: str, device: PlainDevice, phase_s: float) -> None:
        next_s = self._clock.monotonic_s() + phase_s
        while True:
            await self._clock.sleep(max(0.0, next_s - self._clock.monotonic_s()))
            next_s = max(next_s + INTERVAL_S, self._clock.monotonic_s())
            if device.outbox.full:
                continue
            t_ms, value = self._clock.now_ms(), self._rng.randint(-800, 800) / 8
            n = self.standing.give(name, t_ms, value)
            reading = {"t": t_ms, "epoch": self._epoch, "seq": n, "n": n, "value": value}
            device.offer(name, STREAM, orjson.dumps(reading))

    def _on_refused(self, message: Message) -> bool:
        """Say it aloud: nothing is wrong with these readings, so the ledger counts them as lost."""
        log.error("the cloud refused %s", message.payload.decode("utf-8", "replace"))
        return False

    async def _register(self) -> None:
        """Until the query is registered, whatever is away meanwhile."""
        while True:
            try:
                await asyncio.to_thread(self._ask_for_query)
            except urllib.error.HTTPError as error:
                log.debug("the query is not registered yet: %d", error.code)
            except OSError as error:
                log.debug("the operations API is away: %s", error)
            else:
                return
            await self._clock.sleep(REGISTER_S)

    def _ask_for_query(self) -> None:
        request = urllib.request.Request(  # noqa: S310  (our own address)
            f"{self._plan.ops_url}/v1/queries",
            method="POST",
            data=json.dumps({"text": SQL}).encode(),
            headers={
                "Authorization": f"Bearer {self._plan.key}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=ASK_S):  # noqa: S310
            return

    async def _watch_reader(self) -> None:
        """End with what ended the reader; keep the list of its refusals short."""
        while self._reader.awake:
            del self._reader.refusals[:-REFUSALS_KEPT]
            await self._clock.sleep(WRITE_S)

    def _on_event(self, _: str, event: Event) -> None:
        if event.name not in {"message", "watermark"}:
            return
        body: dict[str, Any] = json.loads(event.data)
        if event.name == "watermark":
            self.standing.make_final(body["watermark"])
        elif "query" in body:
            row = Row(*(body[name] for name in ("revision", "readings", "total", "low", "high")))
            self.standing.show_window(body["device"], body["window_start"], row)
        elif body["epoch"] == self._epoch:
            now_ms = self._clock.now_ms()
            self.standing.show(body["device"], body["n"], body["t"], body["value"], now_ms=now_ms)

    async def _write(self) -> None:
        new = self._plan.out.with_name(self._plan.out.name + ".new")
        while True:
            try:
                new.write_text(self.verdict().model_dump_json(), "utf-8")
                new.replace(self._plan.out)  # whoever reads it never sees a half
            except OSError as error:
                log.warning("%s: %s", self._plan.out, error.strerror)
            await self._clock.sleep(WRITE_S)

    def verdict(self) -> Verdict:
        """The verdict as it stands now."""
        now_ms, standing = self._clock.now_ms(), self.standing
        return Verdict(
            at=now_ms,
            taken=standing.taken,
            shown=standing.shown,
            waiting=standing.waiting,
            oldest_ms=standing.oldest_ms(now_ms),
            lost=standing.lost(now_ms),
            twice=standing.twice,
            wrong=standing.wrong,
            windows=standing.windows,
            late=standing.late,
            sentences=list(standing.sentences)[::-1],
        )
