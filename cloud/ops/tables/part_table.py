"""The parts of the system, as the supervisor or they themselves say. No I/O.

The supervisor's word wins: of a part that it tells of nothing else is taken. Two parts of one name
on two machines are two: the second is `name@host`. One that starts on another machine under the
name of one that stopped or is silent takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from edgewake.cloud.ops.tables.device_table import Event
from edgewake.protocol.ops.part_status import SILENT_MS, SUPERVISOR

PARTS_MAX: Final = 200
"""The most parts; reports of further ones are skipped and counted as unreadable."""
STALE_MS: Final = 10_000
"""ms without a report after which a part is `unknown`; the supervisor reports every 2 s."""
FORGOTTEN_MS: Final = 86_400_000
"""ms after its last word when a part that told of itself and is gone is forgotten."""
OLD_MS: Final = 300_000
"""A word that is older when it is read was said before, and does not count as heard now; a younger
one does, so that clocks of machines may differ by so much."""
GONE: Final = frozenset({"silent", "stopped", "unknown"})
"""States of a part that is not there."""


class PartView(BaseModel):
    """A part as it was last heard of."""

    part: str
    """Its name; of several of one name on several machines with `@host`."""
    kind: str = ""
    """E.g. bridge; empty: its name begins with it."""
    state: str
    """starting, ready, restarting, stopped, failed; unknown when the supervisor is silent. Of a
    part that tells of itself: ready, not ready, hangs, stopped, silent."""
    detail: str = ""
    """Why it is not ready."""
    seen_at: int
    host: str | None = None
    """The machine or container; null where the supervisor tells of it."""
    pid: int | None = None
    restarts: int | None = None
    rss_mib: float | None = None
    cpu_percent: float | None = None
    uptime_s: float | None = None
    version: str | None = None
    """The version that it runs, or from which the supervisor starts parts."""

    @property
    def is_kind(self) -> str:
        """What kind of part it is, or begins with."""
        return self.kind or self.part


class PartTable(dict[str, PartView]):
    """Name → part."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[str, int] = {}
        """When each was last heard, by this server's clock."""

    def put(self, reading: Mapping[str, Any], *, now: int) -> Iterator[Event]:
        """Takes a word. Raises ValueError where there are too many parts."""
        received_at = reading["received_at"]
        part = PartView.model_validate({**reading, "seen_at": received_at})
        if reading["device"] == SUPERVISOR:
            part = part.model_copy(update={"host": None})
        else:
            named = self._name_of(part)
            if named is None:
                return
            part = part.model_copy(update={"part": named})
        before = self.get(part.part)
        if before is None and len(self) >= PARTS_MAX:
            raise ValueError("too many parts")
        self[part.part] = part
        self._heard[part.part] = now if now - received_at < OLD_MS else received_at
        if before is None or _facts(before) != _facts(part):
            yield _event(part)

    def _name_of(self, part: PartView) -> str | None:
        """The name under which a part that tells of itself stands; None: the supervisor tells."""
        beside = f"{part.part}@{part.host}"
        if beside in self:
            return beside
        found = self.get(part.part)
        if found is None or found.host == part.host:
            return part.part
        if found.host is None:
            return part.part if found.state in GONE else None
        return part.part if found.state in GONE else beside

    def look(self, *, now: int) -> Iterator[Event]:
        """Returns the events of parts of which nothing was heard for too long."""
        for name, part in list(self.items()):
            lasts_ms = now - self._heard[name]
            is_own = part.host is not None
            if is_own and part.state in GONE and lasts_ms > FORGOTTEN_MS:
                del self[name], self._heard[name]
            elif part.state not in GONE and lasts_ms > (SILENT_MS if is_own else STALE_MS):
                self[name] = stale = part.model_copy(
                    update={"state": "silent" if is_own else "unknown"}
                )
                yield _event(stale)


def _facts(part: PartView) -> tuple[object, ...]:
    return part.state, part.pid, part.restarts


def _event(part: PartView) -> Event:
    return {"kind": "part", **part.model_dump(mode="json")}
