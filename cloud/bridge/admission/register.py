"""The register of sessions that bridges keep on their MQTT brokers: `ew.bridges`.

So no session is forgotten when all bridges die.

Key `<site>|<bridge>`, value `{"instance":"…"}`: the process that last started under this name. A
bridge writes its row before it connects, and the process that ended a session deletes it. A process
that finds another one in its row has a twin that started later, and ends; one whose row is missing
was adopted while it was frozen, and writes it again. No I/O.
"""

from __future__ import annotations

import orjson


class Register:
    """The rows of one site, as the topic has them so far."""

    def __init__(self, *, site: str, own: str, instance: str) -> None:
        self._prefix = f"{site}|"
        self._own = own
        self._instance = instance
        self._instances: dict[str, str] = {}

    def follow(self, key: str, value: bytes | None) -> None:
        """Apply a record of the topic. Raises ValueError for one that cannot be read."""
        if not key.startswith(self._prefix):
            return
        name = key.removeprefix(self._prefix)
        if value is None:
            self._instances.pop(name, None)
            return
        match orjson.loads(value):
            case {"instance": str(instance)}:
                self._instances[name] = instance
            case _:
                raise ValueError(f"row {key!r}: expected an object with `instance`")

    @property
    def sessions(self) -> frozenset[str]:
        """The bridges that have, or had, a session here."""
        return frozenset(self._instances)

    @property
    def is_missing(self) -> bool:
        """Is our own row gone?"""
        return self._own not in self._instances

    @property
    def has_twin(self) -> bool:
        """Did another process start under our name after us?"""
        return self._instances.get(self._own, self._instance) != self._instance

    def row(self) -> tuple[str, bytes]:
        """Our own row: key and value."""
        return self.key(self._own), orjson.dumps({"instance": self._instance})

    def key(self, name: str) -> str:
        """The key of a bridge's row."""
        return self._prefix + name
