"""Readings of many devices, gathered into frames: for files that are played as fast as they go.

Pure.

A frame costs the broker and the bridge as much as one reading, so a hundred readings in one go a
hundred times as fast.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.frames.frame import FRAME_BYTES_MAX, Frame, Gap, encode

FRAME_READINGS: Final = 100
"""Readings of one device in a frame, as an agent with much to send forms them."""
HELD_READINGS_MAX: Final = 20_000
"""Readings of all devices that wait for their frames to fill; then all leave as they are."""


class Made(NamedTuple):
    """A frame to send."""

    device: str
    payload: bytes
    readings: int


@dataclass(slots=True)
class _Open:
    """What a device's next frame has so far."""

    times: list[int] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)


class Framing:
    """Frames of all devices of one stream, numbered from 1 for each."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._open: dict[str, _Open] = {}
        self._held = 0
        self._frames: dict[str, int] = {}
        self._seq: dict[str, int] = {}

    def put(self, device: str, t: int, fields: Mapping[str, Any]) -> Collection[Made]:
        """Take a reading; the frames that are full now."""
        waiting = self._open.setdefault(device, _Open())
        waiting.times.append(t)
        waiting.rows.append(fields)
        self._held += 1
        if len(waiting.times) >= FRAME_READINGS:
            return self._close(device)
        return self.rest() if self._held >= HELD_READINGS_MAX else ()

    def rest(self) -> list[Made]:
        """All that waits, in the order in which the devices came."""
        return list(chain.from_iterable(self._close(device) for device in list(self._open)))

    def _close(self, device: str) -> list[Made]:
        waiting = self._open.pop(device)
        self._held -= len(waiting.times)
        return list(self._made(device, waiting.times, waiting.rows))

    def _made(self, device: str, times: list[int], rows: list[Mapping[str, Any]]) -> Iterator[Made]:
        number, seq = self._frames.get(device, 0) + 1, self._seq.get(device, 0) + 1
        payload = encode(Frame(self._epoch, number, seq, times, _columns(rows)))
        if len(payload) > FRAME_BYTES_MAX and len(times) > 1:
            middle = len(times) // 2
            yield from self._made(device, times[:middle], rows[:middle])
            yield from self._made(device, times[middle:], rows[middle:])
            return
        self._frames[device], self._seq[device] = number, seq + len(times) - 1
        yield Made(device, payload, len(times))


def _columns(rows: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(chain.from_iterable(rows))
    return {name: [_scalar(row.get(name)) for row in rows] for name in names}


def _scalar(value: Any) -> Any:
    """Arrays become JSON text, as those of a plain reading do."""
    return orjson.dumps(value).decode() if type(value) is list else value


def singly(payload: bytes, epoch: int) -> Iterator[tuple[int, bytes]]:
    """The parts of a refused frame as (number of readings, payload).

    They are its statement that nobody need wait for it, and its readings as plain ones.

    One reading may be what a frame of a hundred was refused for. `epoch` is another than the
    frames', so that numbers do not collide.
    """
    frame = orjson.loads(payload)  # not checked: what is wrong in it the cloud has found already
    seq, columns = frame["seq"], frame["fields"]
    yield (
        0,
        encode(
            Frame(
                frame["epoch"],
                frame["frame"],
                seq,
                (),
                {},
                gap=Gap("rejected", 0),
                first_frame=frame["frame"],
            )
        ),
    )
    for i, t in enumerate(frame["t"]):
        fields = {name: column[i] for name, column in columns.items() if column[i] is not None}
        yield 1, orjson.dumps({"t": t, "epoch": epoch, "seq": seq + i, **fields})
