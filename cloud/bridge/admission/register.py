"""The register of sessions that bridges keep on their MQTT brokers: `ew.bridges`.

So no session is forgotten when all bridges die.

    <site>|<bridge>         {"instance":"…","asked":0}: the process that last started under this
                            name, and how often it connected, or asked for its session, since
    <site>|<bridge>|heir    {"heir":"…"}: the bridge that empties this session now, and repeats it

A bridge writes its row before it connects, and the process that ended a session deletes it. A
process that finds another one in its row has a twin that started later, and ends; one whose row is
missing was adopted while it was frozen, and writes it again.

Both rows stand in one partition, so of a bridge that comes back and one that is about to empty its
session the later one sees what the earlier one wrote: see `handover`. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

HEIR_S: Final = 5.0
"""Seconds after which an heir that has not repeated its row is taken for dead."""
_HEIR: Final = "heir"


class Standing(NamedTuple):
    """A bridge's row."""

    instance: str
    asked: int


class Register:
    """The rows of one site, as the topic has them so far."""

    def __init__(
        self, *, site: str, own: str, instance: str, monotonic_s: Callable[[], float]
    ) -> None:
        self._prefix = f"{site}|"
        self.own: Final = own
        self._mine = Standing(instance, 0)
        self._monotonic_s = monotonic_s
        self._rows: dict[str, Standing] = {}
        self._heirs: dict[str, tuple[str, float]] = {}
        """By session: who empties it, and when we read so last."""

    def follow(self, key: str, value: bytes | None) -> None:
        """Apply a record of the topic. Raises ValueError for one that cannot be read."""
        if not key.startswith(self._prefix):
            return
        name, _, kind = key.removeprefix(self._prefix).partition("|")
        if value is None:
            (self._heirs if kind == _HEIR else self._rows).pop(name, None)
            return
        match kind, orjson.loads(value):
            case "", {"instance": str(instance), **more}:
                self._rows[name] = Standing(instance, _number(more.get("asked")))
            case "heir", {"heir": str(heir)}:
                self._heirs[name] = (heir, self._monotonic_s())
            case _:
                raise ValueError(f"row {key!r}: expected an object with `instance`")

    @property
    def sessions(self) -> frozenset[str]:
        """The bridges that have, or had, a session here."""
        return frozenset(self._rows)

    @property
    def is_missing(self) -> bool:
        """Is our own row gone?"""
        return self.own not in self._rows

    @property
    def is_told(self) -> bool:
        """Has the topic our row as it is to be, and do we know all that stands before it?"""
        return self._rows.get(self.own) == self._mine

    @property
    def has_twin(self) -> bool:
        """Did another process start under our name after us?"""
        return self._rows.get(self.own, self._mine).instance != self._mine.instance

    def standing(self, name: str) -> Standing | None:
        """The row of a bridge; None: it has none."""
        return self._rows.get(name)

    def heir(self, name: str) -> str | None:
        """The bridge that empties a session now; None: none that we heard of lately."""
        heir, heard_s = self._heirs.get(name, ("", 0.0))
        return heir if heir and self._monotonic_s() - heard_s < HEIR_S else None

    @property
    def has_dead_heir(self) -> bool:
        """Is there a row of an heir of ours that is not repeated any more?"""
        return self.own in self._heirs and self.our_heir is None

    @property
    def our_heir(self) -> str | None:
        """The bridge that empties our own session now."""
        return self.heir(self.own)

    def is_ours(self, name: str) -> bool:
        """Has the topic that we empty this session?"""
        return self.heir(name) == self.own

    def ask(self) -> None:
        """Our row is to say that we want our session, once more."""
        self._mine = self._mine._replace(asked=self._mine.asked + 1)

    def row(self) -> tuple[str, bytes]:
        """Our own row: key and value."""
        return self.key(self.own), orjson.dumps(self._mine._asdict())

    def key(self, name: str) -> str:
        """The key of a bridge's row."""
        return self._prefix + name

    def heir_row(self, name: str) -> tuple[str, bytes]:
        """The row that says that we empty a session: key and value."""
        return self.heir_key(name), orjson.dumps({"heir": self.own})

    def heir_key(self, name: str) -> str:
        """The key of the row of a session's heir."""
        return f"{self._prefix}{name}|{_HEIR}"


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
