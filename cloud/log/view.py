"""A view: one subscription, followed once for all clients that have it.

A filter is evaluated once per event, and each tick the view has one chunk of bytes, ids included, that all its clients are sent. The
latest chunks are kept within a bound: a client that was slow for a moment goes on among them, one that is further back from the tail or
from Kafka. There is no queue per client. How a batch becomes bytes is the caller's: an `Encoder`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from edgewake.cloud.log.reader import Batch, Reader
from edgewake.cloud.log.subscription import Positions

JOIN_BYTES: Final = 64 * 1024
"""Chunks that a client is behind are joined up to so many bytes for one write."""


class Waiting(Protocol):
    """A client that waits at the view's end."""

    def wake(self) -> None:
        """There is something."""


class Encoder(Protocol):
    """Makes a format's bytes, cursors included."""

    def events(self, batch: Batch) -> bytes:
        """The events of a batch."""

    def checkpoint(self, positions: Positions) -> bytes:
        """A place without an event."""


class View:
    """A subscription at the live end. `positions` is where it stands, `end` the number of the chunk to come."""

    def __init__(self, reader: Reader, encoder: Encoder, *, bytes_max: int) -> None:
        self.encoder = encoder
        self.plan = reader.plan
        self.positions = reader.positions
        self.end = 0
        self.events = 0
        """Events shown since the start."""
        self.clients: set[Waiting] = set()
        self.waiting: set[Waiting] = set()
        """Live clients that have all chunks."""
        self.behind: set[Waiting] = set()
        """Clients with a place of their own that this view has not reached yet."""
        self.closed = False
        self._reader = reader
        self._chunks: deque[tuple[bytes, Positions]] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._untold = False

    @property
    def start(self) -> int:
        """Number of the oldest chunk that is kept."""
        return self.end - len(self._chunks)

    def advance(self) -> None:
        """Go on to the end of the tails and wake who waits."""
        before = self.end
        if self._reader.cold():
            self._leap()
        more = True
        while more:
            batch = self._reader.read_tails()
            self._add(batch)
            more = batch.full
        self.positions = self._reader.positions
        behind, self.behind = self.behind, set()
        for client in behind:
            client.wake()
        if self.end != before:
            self._wake()

    def tell(self) -> None:
        """Tell the place if filtered-out events moved it since the last id; called once a second."""
        if self._untold:
            self._untold = False
            self._keep(self.encoder.checkpoint(self.positions), self.positions)
            self._wake()

    def close(self) -> None:
        """No more comes: a stream was made anew or lost; clients come back and are told."""
        self.closed = True
        self._wake()

    def chunk(self, number: int) -> tuple[bytes, int, Positions]:
        """The bytes from chunk `number` on, the number after them and the place there. It must be kept and not be the end."""
        offset = number - self.start
        first, positions = self._chunks[offset]
        if offset + 1 == len(self._chunks):
            return first, number + 1, positions
        parts, size = [first], len(first)
        for chunk, after in list(self._chunks)[offset + 1 :]:
            size += len(chunk)
            if size > JOIN_BYTES:
                break
            parts.append(chunk)
            positions = after
        return b"".join(parts), number + len(parts), positions

    def _add(self, batch: Batch) -> None:
        if batch.steps:
            self.events += len(batch.steps)
            self._keep(self.encoder.events(batch), batch.end)
        self._untold = batch.untold or (self._untold and not batch.steps)

    def _keep(self, chunk: bytes, positions: Positions) -> None:
        self._chunks.append((chunk, positions))
        self.end += 1
        self._bytes += len(chunk)
        while self._bytes > self._bytes_max and len(self._chunks) > 1:
            self._bytes -= len(self._chunks.popleft()[0])

    def _leap(self) -> None:
        """A burst overran a tail before we read it. Stand at the tails' ends; every client goes on from its own place through Kafka."""
        self._reader.skip_to_tails()
        self._chunks.clear()
        self._bytes = 0
        self.end += 1
        self._untold = False

    def _wake(self) -> None:
        waiting, self.waiting = self.waiting, set()
        if self.closed:
            waiting |= self.behind
        for client in waiting:
            client.wake()
