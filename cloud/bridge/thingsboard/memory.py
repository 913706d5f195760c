"""What is remembered of ThingsBoard's devices: attributes, and commands that they were sent. Pure.

It is kept in `ew.attributes`, so that it outlasts this bridge, and every other bridge knows it.
Bounded for one device, for all that one token speaks for, and for all together; who goes over the
second or third bound forgets its longest quiet device, or has it forgotten.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.downlink.down_row import OPEN_MAX

ATTRIBUTES_MAX: Final = 256
"""Attributes of a device, of its own and of those that were set for it each."""
DEVICE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a device's attributes, as JSON; what would go over is not remembered, and said."""
TOKEN_BYTES_MAX: Final = 8 << 20
"""Bytes of all devices that one token speaks for."""
BYTES_MAX: Final = 64 << 20
"""Bytes of all devices."""
TOLD_MAX: Final = OPEN_MAX
"""Commands that a device was sent and that wait for its answer."""


class Row(NamedTuple):
    """A record of `ew.attributes`; a value of None forgets the device."""

    device: str
    value: bytes | None


@dataclass(slots=True)
class Kept:
    """What is kept of a device."""

    token: str
    """The device that its token is for: itself, or the gateway that spoke for it last."""
    client: dict[str, Any] = field(default_factory=dict)
    """Attributes that it sent."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Attributes that were set for it."""
    told: list[str] = field(default_factory=list)
    """Ids of commands that it has, at most TOLD_MAX."""
    at: str = ""
    """Name of the bridge that it is connected to; empty: to none."""
    size: int = 0
    """Bytes as JSON."""

    def text(self, by: str = "") -> bytes:
        """The row's value. `by`: who writes it."""
        body = {
            "by": by,
            "token": self.token,
            "at": self.at,
            "client": self.client,
            "shared": self.shared,
            "told": self.told,
        }
        return orjson.dumps(body)


NOTHING: Final = Kept("")


class Memory:
    """Not for several threads."""

    def __init__(self, own: str, bridge: str) -> None:
        """`own`: this process, as no other one is called; `bridge`: the name that it keeps.

        What it wrote itself is read from Kafka later, and tells nothing new then.
        """
        self.write: Callable[[Row], None] = lambda _row: None
        """Gets each row that changed."""
        self._own = own
        self._bridge = bridge
        self._forgotten: Counter[str] = Counter()
        """Rows of None that it wrote and has not read."""
        self._devices: dict[str, Kept] = {}
        self._by_token: OrderedDict[str, OrderedDict[str, Kept]] = OrderedDict()
        """The longest quiet one is the first, of tokens and of devices of each."""
        self._token_bytes: dict[str, int] = {}
        self._bytes = 0

    def of(self, device: str) -> Kept:
        """What is known of a device."""
        return self._devices.get(device, NOTHING)

    def follow(self, device: str, value: bytes | None) -> None:
        """A record of `ew.attributes`, also an own one. Raises ValueError."""
        if value is None:
            own = self._forgotten.pop(device, 0)
            if own == 0:
                self._drop(device)
            elif own > 1:
                self._forgotten[device] = own - 1
            return
        said = orjson.loads(value)
        try:
            if said["by"] == self._own:
                return
            kept = Kept(
                str(said["token"]),
                dict(said["client"]),
                dict(said["shared"]),
                list(said["told"]),
                str(said["at"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"attributes of {device!r}: {error!r}") from error
        self._put(device, kept, len(value))
        # Another bridge wrote it, and itself forgets in Kafka what that leaves no room for.
        self._make_room(device, writes=False)

    def keep(self, device: str, token: str, kind: str, values: Mapping[str, Any]) -> str:
        """Remember attributes of `kind` (`client` or `shared`); why not all of them, or nothing."""
        if not values:
            return ""
        kept = self._copy(device, token)
        known: dict[str, Any] = getattr(kept, kind)
        left, size = [], len(kept.text())
        for name, value in values.items():
            is_new = name not in known
            if is_new and len(known) >= ATTRIBUTES_MAX:
                left.append(name)
                continue
            more = len(orjson.dumps({name: value}))
            less = 0 if is_new else len(orjson.dumps({name: known[name]}))
            if size + more - less > DEVICE_BYTES_MAX:
                left.append(name)
                continue
            known[name] = value
            size += more - less
        self._save(device, kept)
        if not left:
            return ""
        return (
            f"{len(left)} attributes are not remembered, {left[0][:100]!r} first: a device has at "
            f"most {ATTRIBUTES_MAX} and {DEVICE_BYTES_MAX} bytes of them"
        )

    def tell(self, device: str, token: str, command: str, waiting: Iterable[str]) -> None:
        """The device has a command. `waiting`: ids of all that wait for its answer."""
        kept = self._copy(device, token)
        open_ids = {*waiting}
        kept.told = [one for one in kept.told if one in open_ids and one != command]
        kept.told = [*kept.told, command][-TOLD_MAX:]
        self._save(device, kept)

    def arrived(self, device: str, token: str) -> None:
        """It is connected to this bridge."""
        kept = self._copy(device, token)
        kept.at = self._bridge
        self._save(device, kept)

    def left(self, device: str) -> bool:
        """It is not connected to this bridge any more; is it to none, as far as is known?"""
        found = self.of(device)
        if found.at == self._bridge:
            kept = self._copy(device, found.token)
            kept.at = ""
            self._save(device, kept)
        return found.at in ("", self._bridge)

    def here(self) -> list[str]:
        """Devices that were connected to this bridge last, as far as is known."""
        return [device for device, kept in self._devices.items() if kept.at == self._bridge]

    def _copy(self, device: str, token: str) -> Kept:
        found = self.of(device)
        client, shared = dict(found.client), dict(found.shared)
        return Kept(token, client, shared, list(found.told), found.at)

    def _save(self, device: str, kept: Kept) -> None:
        text = kept.text(self._own)
        before = self._devices.get(device)
        is_same = before is not None and before.text(self._own) == text
        self._put(device, kept, len(text))
        if not is_same:
            self.write(Row(device, text))
        self._make_room(device, writes=True)

    def _put(self, device: str, kept: Kept, size: int) -> None:
        self._drop(device)
        kept.size = size + len(device)
        self._devices[device] = kept
        self._by_token.setdefault(kept.token, OrderedDict())[device] = kept
        self._by_token.move_to_end(kept.token)
        self._token_bytes[kept.token] = self._token_bytes.get(kept.token, 0) + kept.size
        self._bytes += kept.size

    def _drop(self, device: str) -> None:
        kept = self._devices.pop(device, None)
        if kept is None:
            return
        of_token = self._by_token[kept.token]
        del of_token[device]
        self._token_bytes[kept.token] -= kept.size
        self._bytes -= kept.size
        if not of_token:
            del self._by_token[kept.token], self._token_bytes[kept.token]

    def _make_room(self, newest: str, *, writes: bool) -> None:
        token = self._devices[newest].token
        while self._token_bytes[token] > TOKEN_BYTES_MAX:
            self._forget(next(iter(self._by_token[token])), writes=writes)
        while self._bytes > BYTES_MAX:
            longest_quiet = next(iter(self._by_token.values()))
            self._forget(next(iter(longest_quiet)), writes=writes)

    def _forget(self, device: str, *, writes: bool) -> None:
        self._drop(device)
        if writes:
            self._forgotten[device] += 1
            self.write(Row(device, None))
