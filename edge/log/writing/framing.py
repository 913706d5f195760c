"""Decides which streams get no frame now. Belongs to the writer.

They are those that the uplink holds back, and those whose next frame waits for more readings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.writing.filling import Filling


class Framing:
    """Told by the uplink and by each commit.

    The store is an argument: it is another one after an error.
    """

    def __init__(self, filling: Filling, lane: Callable[[str], Lane]) -> None:
        self._filling = filling
        self._lane = lane
        self.paused: frozenset[str] = frozenset()
        """Streams that the cloud or the broker asked to wait."""
        self.closed: frozenset[Lane] = frozenset()
        """Lanes that wait for their hours."""
        self.hurries = False
        """The agent stops: no frame waits for company any more."""
        self.first_came_s: float | None = None
        """When the first reading of the next commit came, where it lingered."""

    def held_back(self, store: LogStore) -> frozenset[str]:
        """Streams that the uplink takes nothing of."""
        return self.paused | store.streams_of(self.closed)

    def filling(
        self, store: LogStore, now_s: float, coming: Mapping[str, Sequence[Reading]] | None = None
    ) -> frozenset[str]:
        """Streams whose next frame waits for company; `coming`: what the next commit brings."""
        return frozenset(
            stream for stream, due_s in self._due_s(store, coming or {}) if due_s > now_s
        )

    def due_s(self, store: LogStore, now_s: float, default_s: float) -> float:
        """When the first of them is due, `default_s` at the latest."""
        return min(
            (due_s for _, due_s in self._due_s(store, {}) if due_s > now_s), default=default_s
        )

    def _due_s(
        self, store: LogStore, coming: Mapping[str, Sequence[Reading]]
    ) -> Iterator[tuple[str, float]]:
        if self.hurries:
            return
        for stream in self._filling.waiting:
            due_s = self._filling.due_s(
                stream, self._lane(stream), store.unframed(stream) + len(coming.get(stream, ()))
            )
            if due_s is not None:
                yield stream, due_s

    def takes(self, readings: Mapping[str, Sequence[Reading]], now_s: float) -> None:
        """A commit takes these."""
        since_s, self.first_came_s = now_s if self.first_came_s is None else self.first_came_s, None
        for stream, of in readings.items():
            self._filling.committed(stream, len(of), now_s, since_s=since_s)

    def done(self, store: LogStore) -> None:
        """A commit was made."""
        for stream in self._filling.waiting:
            if not store.unframed(stream):
                self._filling.framed(stream)
