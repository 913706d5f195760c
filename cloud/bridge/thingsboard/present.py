"""Which connections speak for which devices: several may have one token, or one device behind them.

Pure. A device is gone when the last connection that speaks for it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

C = TypeVar("C")


class Present(Generic[C]):
    """`C`: a connection."""

    def __init__(self) -> None:
        self._by_device: dict[str, list[C]] = {}
        """The newest is the last."""
        self._by_client: dict[C, dict[str, None]] = {}

    def __iter__(self) -> Iterator[C]:
        """All connections."""
        return iter([*self._by_client])

    def speaks(self, client: C, device: str) -> None:
        """It speaks for a device from now on, its own or one behind it."""
        own = self._by_client.setdefault(client, {})
        if device not in own:
            own[device] = None
            self._by_device.setdefault(device, []).append(client)

    def stops(self, client: C, device: str) -> None:
        """It speaks for it no more."""
        if self._by_client.get(client, {}).pop(device, self) is self:
            return
        left = self._by_device[device]
        left.remove(client)
        if not left:
            del self._by_device[device]

    def leave(self, client: C) -> Sequence[str]:
        """It is gone; the devices that nobody speaks for now."""
        devices = [*self._by_client.get(client, ())]
        for device in devices:
            self.stops(client, device)
        self._by_client.pop(client, None)
        return [one for one in devices if one not in self._by_device]

    def of(self, device: str) -> Sequence[C]:
        """Who speaks for it, the newest first."""
        return self._by_device.get(device, [])[::-1]
