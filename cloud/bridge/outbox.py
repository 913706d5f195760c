"""What waits for devices, and when a bridge sends it. No I/O.

What is for a thing behind a gateway waits for the gateway.

Each bridge follows `ew.down` whole and sends at once what is new. A device that was away gets what
waits at the first status of its connection, and again every REPEAT_S at its statuses until the
answer has come back by way of the operations API. So nothing is sent to who is not there, a lost
bridge or broker costs a repetition, and several bridges send the same more than once, which the id
makes harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import orjson

from edgewake.protocol.downlink.down_row import DownRow

REPEAT_S: Final = 60.0
"""Until the same is sent to a device once more. A command that runs longer is known to the device
and costs it one packet."""


@dataclass(slots=True)
class _Device:
    rows: dict[str, DownRow] = field(default_factory=dict)
    """Waiting rows by key."""
    connected_at: object = None
    """When the device connected, by its last status."""
    sent_s: float = float("-inf")


class Outbox:
    """The messages that wait for devices."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._due: dict[str, DownRow] = {}
        self._held_by: dict[str, str] = {}
        """By key of a row that waits: who it is sent to, the gateway where it is a thing's."""
        self.is_loaded = False
        """Before, what is read is not new."""
        self.sent = 0
        self.ways: list[Callable[[DownRow], bool]] = []
        """Each sends a row to a device that is connected to this process itself; False: it is
        not."""

    def follow(self, key: str, value: bytes | None) -> None:
        """A record of `ew.down`. Raises ValueError."""
        name, _, _ = key.rpartition("|")
        row = None if value is None else DownRow.model_validate_json(value)
        if row is None or row.answer is not None:
            self._due.pop(key, None)
            holder = self._held_by.pop(key, name)
            known = self._devices.get(holder)
            if known is not None:
                known.rows.pop(key, None)
                if not known.rows:
                    del self._devices[holder]
            return
        if row.device != name:
            raise ValueError(f"key {key!r}: its row is of device {row.device!r}")
        holder = self._held_by[key] = row.sent_to
        self._devices.setdefault(holder, _Device()).rows[key] = row
        if self.is_loaded:
            self._due[key] = row

    def on_status(self, device: str, status: bytes, now_s: float) -> None:
        """An agent said how it is (a DeviceStatus as JSON)."""
        known = self._devices.get(device)
        if known is None:
            return
        said = orjson.loads(status)
        if said.get("state") != "online":
            return
        is_new = said.get("connected_at") != known.connected_at
        if is_new or now_s - known.sent_s >= REPEAT_S:
            known.connected_at, known.sent_s = said.get("connected_at"), now_s
            self._due |= known.rows

    def on_connected(self, device: str) -> None:
        """It is there and listens: what waits for it is due."""
        known = self._devices.get(device)
        if known is not None:
            self._due |= known.rows

    def waiting(self, device: str) -> list[DownRow]:
        """All that waits for a device's answer."""
        known = self._devices.get(device)
        return [] if known is None else [*known.rows.values()]

    def due(self, now_ms: int) -> Iterator[tuple[str, DownRow]]:
        """(key, row) of what is to be sent now; `sent` takes them off."""
        for key, row in list(self._due.items()):
            if row.waits_at(now_ms):
                if any(way(row) for way in self.ways):
                    self.on_sent(key)
                else:
                    yield key, row
            else:
                del self._due[key]

    def on_sent(self, key: str) -> None:
        """It is on its way to the broker."""
        self._due.pop(key, None)
        self.sent += 1
