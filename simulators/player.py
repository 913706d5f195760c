"""Plays readings to a broker at their pace and waits until the cloud has each of them.

The file waits for the network, never the other way round: at OUTBOX_MAX unacknowledged readings the
next row is not read. Readings of one device leave in order, each after the acknowledgement of the
one before where `in_flight_per_device` is 1. Where nobody asked for a pace they leave in frames; a
frame that the cloud refuses goes once more reading by reading, so that one bad reading costs itself
alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import orjson

from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.frame import FRAME_TYPE
from edgewake.simulators.framing import FRAME_READINGS, Framing, Made, singly
from edgewake.simulators.outbox import Message, Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from edgewake.simulators.recordings.readings import Pace, Reading
from edgewake.simulators.recordings.rows import BadRow

OUTBOX_MAX: Final = 2000
"""Messages read from the file and not yet acknowledged; then the file waits."""
IN_FLIGHT_MAX: Final = 256
"""Messages on the way at once, all devices together."""
IN_FLIGHT_AT_FULL_SPEED: Final = 64
"""Messages of one device on their way at once, where nobody asked for a pace: far fewer than the
sequencer can put right (1024)."""
BAD_ROWS_SHOWN: Final = 5


@dataclass(slots=True)
class Summary:
    """What became of a file."""

    sent: int = 0
    acked: int = 0
    rejected: int = 0
    last_rejection: str = ""
    unacked: int = 0
    """Readings sent that nobody acknowledged before the patience ended; the cloud may have them or
    not."""
    bad_rows: int = 0
    first_bad: list[BadRow] = field(default_factory=list)
    devices: int = 0

    def note_bad(self, row: BadRow) -> None:
        """Count a bad row, keep the first ones."""
        self.bad_rows += 1
        if len(self.first_bad) < BAD_ROWS_SHOWN:
            self.first_bad.append(row)

    @property
    def complete(self) -> bool:
        """Did the cloud take every reading?"""
        return self.unacked == 0 and self.rejected == 0


@dataclass(frozen=True, slots=True)
class PlayPlan:
    """What to play, and how fast."""

    broker: Broker
    stream: str
    patience_s: float = 60.0
    """Without any acknowledgement for so long, give up."""
    in_flight_per_device: int = 1
    in_frames: bool = False
    """Gather readings into frames: as fast as it goes, and nobody sees a reading when it is due."""


class Player:
    """One connection that plays one file."""

    def __init__(self, plan: PlayPlan, *, client_id: str, clock: Clock, rng: random.Random) -> None:
        self._plan = plan
        self._clock = clock
        self._epoch = clock.now_ms() // 1000
        self._seq: dict[str, int] = {}
        self._framing = Framing(self._epoch)
        # Room for all readings of refused frames beside what the file may bring.
        outbox = Outbox(
            window=IN_FLIGHT_MAX,
            lane_window=plan.in_flight_per_device,
            capacity=OUTBOX_MAX + IN_FLIGHT_MAX * (FRAME_READINGS + 1),
        )
        self._device = PlainDevice(
            client_id,
            plan.broker,
            outbox,
            clock=clock,
            rng=rng,
            on_change=lambda _: None,
            on_refused=self._send_singly,
        )
        self.summary = Summary()

    async def play(
        self, readings: Iterable[Reading | BadRow], pace: Pace, on_row: Callable[[], None]
    ) -> Summary:
        """Play to the end, or until acknowledgements stop; `summary` is valid at any moment."""
        connection = asyncio.create_task(self._device.run(), name="replay connection")
        playing = asyncio.create_task(self._play(readings, pace, on_row), name="replay")
        try:
            await asyncio.wait({connection, playing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (connection, playing):
                if task.done():
                    task.result()
        finally:
            for task in (connection, playing):
                task.cancel()
            await asyncio.gather(connection, playing, return_exceptions=True)
            self._count()
        return self.summary

    async def _play(
        self, readings: Iterable[Reading | BadRow], pace: Pace, on_row: Callable[[], None]
    ) -> None:
        start_s = self._clock.monotonic_s()
        for reading in readings:
            on_row()
            if isinstance(reading, BadRow):
                self.summary.note_bad(reading)
                continue
            wait_s = start_s + pace.offset_s(reading.t) - self._clock.monotonic_s()
            if wait_s > 0:
                await self._clock.sleep(wait_s)
            if not await self._until(lambda: len(self._device.outbox) < OUTBOX_MAX):
                return
            if self._send(reading, pace):
                # A hundred rows are work enough for one turn: acknowledgements wait.
                await asyncio.sleep(0)
        self._send_frames(self._framing.rest())
        await self._until(lambda: len(self._device.outbox) == 0)

    def _send(self, reading: Reading, pace: Pace) -> bool:
        """Did anything leave?"""
        seq = self._seq[reading.device] = self._seq.get(reading.device, 0) + 1
        t = pace.event_time(reading.t, self._clock.now_ms())
        self.summary.sent += 1
        if self._plan.in_frames:
            return self._send_frames(self._framing.put(reading.device, t, reading.fields))
        self._device.offer(
            reading.device,
            self._plan.stream,
            orjson.dumps({"t": t, "epoch": self._epoch, "seq": seq, **reading.fields}),
        )
        return False

    def _send_frames(self, frames: Collection[Made]) -> bool:
        for frame in frames:
            self._device.offer(
                frame.device,
                self._plan.stream,
                frame.payload,
                readings=frame.readings,
                content_type=FRAME_TYPE,
            )
        return bool(frames)

    def _send_singly(self, message: Message) -> bool:
        if message.content_type is None or not message.readings:
            return False
        for readings, payload in singly(message.payload, self._epoch + 1):
            content_type = None if readings else FRAME_TYPE
            self._device.offer(
                message.lane,
                self._plan.stream,
                payload,
                readings=readings,
                content_type=content_type,
            )
        return True

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for acknowledgements until `condition`; False where the patience ended first."""
        settled = self._device.settled
        while not condition():
            settled.clear()
            try:
                async with asyncio.timeout(self._plan.patience_s):
                    await settled.wait()
            except TimeoutError:
                return False
        return True

    def _count(self) -> None:
        counts = self._device.counts
        self.summary.acked, self.summary.rejected = counts.acked, counts.rejected
        self.summary.last_rejection = counts.last_rejection
        self.summary.unacked = self._device.outbox.readings
        self.summary.devices = len(self._seq)
