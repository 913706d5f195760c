"""The attributes of devices that may be asked for, bounded for each device and each client. No I/O.

VALUES_BYTES_MAX  of one device; a value that does not fit is not remembered
ATTRIBUTES_MAX    of one device
DEVICES_MAX       of all clients together; the longest quiet is forgotten
DEVICES_OF_ONE    of one client, which may name as many as it likes: its own longest quiet is
                  forgotten, and nobody else's
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

DEVICES_MAX: Final = 10_000
"""Some hundred bytes each as a rule, and 160 MB if all have as much as they may."""
DEVICES_OF_ONE: Final = DEVICES_MAX // 4
"""A share, as of every other bound."""
ATTRIBUTES_MAX: Final = 256
"""Names, each with a value."""
VALUES_BYTES_MAX: Final = 16 * 1024
"""Bytes of the names and values of a device, in JSON."""

NOTHING: Final[Mapping[str, Mapping[str, Any]]] = {"client": {}, "shared": {}}


@dataclass(slots=True)
class _Known:
    owner: str
    values: dict[str, dict[str, Any]] = field(default_factory=lambda: {"client": {}, "shared": {}})
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    bytes: int = 0


class Attributes:
    """See the module."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._of: dict[str, OrderedDict[str, None]] = {}
        """By client: its devices, the longest quiet first."""

    def known(self, device: str) -> Mapping[str, Mapping[str, Any]]:
        """Its own (`client`), and those that were set for it (`shared`)."""
        found = self._known.get(device)
        return NOTHING if found is None else found.values

    def keep(self, device: str, owner: str, kind: str, values: Mapping[str, Any]) -> int:
        """Remember attributes; return how many have no room. `owner`: the client that pays."""
        known = self._known.get(device)
        if known is None or known.owner != owner:
            self._forget(device)
            known = self._known[device] = _Known(owner)
        own = self._of.setdefault(owner, OrderedDict())
        own[device] = None
        own.move_to_end(device)
        self._known.move_to_end(device)
        if len(own) > DEVICES_OF_ONE:
            self._forget(next(iter(own)))
        elif len(self._known) > DEVICES_MAX:
            self._forget(next(iter(self._known)))
        return sum(not _put(known, kind, name, value) for name, value in values.items())

    def _forget(self, device: str) -> None:
        known = self._known.pop(device, None)
        if known is None:
            return
        own = self._of[known.owner]
        del own[device]
        if not own:
            del self._of[known.owner]


def _put(known: _Known, kind: str, name: str, value: Any) -> bool:
    size = len(name) + len(orjson.dumps(value))
    before = known.sizes.get((kind, name))
    more = size - (before or 0)
    if known.bytes + more > VALUES_BYTES_MAX:
        return False
    if before is None and len(known.values[kind]) >= ATTRIBUTES_MAX:
        return False
    known.values[kind][name] = value
    known.sizes[kind, name] = size
    known.bytes += more
    return True
