"""Bounds of what a process keeps of Kafka's streams in memory, and its pace in passing them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from edgewake.protocol.errors import Unavailable

MIB: Final = 1024 * 1024
VIEW_BYTES: Final = 24 * 1024
"""An open subscription: its compiled filter, its cohort and its first subscriber."""
READER_BYTES: Final = 3 * MIB
"""A Kafka reader of older records, librdkafka's queues included."""
KAFKA_BYTES: Final = 16 * MIB
"""The reader of new records with its queue, two batches on their way, and the clients for
questions."""
CHUNK_BYTES: Final = 64 * 1024
"""A chunk that is being made."""
BLOCK_BYTES: Final = 320 * 1024
"""A block of older records, 256 KB and a record."""
KEPT_PARTS: Final = 16
"""Parts of the memory that can be divided for records and events that are kept for the next
reader, …"""
VIEW_PARTS: Final = 15
"""… for views, where nothing else is asked for, …"""
BLOCK_PARTS: Final = 27
"""… and for the blocks that they read: who reads the past waits for its turn, who has read it needs
none."""
PARTS: Final = KEPT_PARTS + VIEW_PARTS + BLOCK_PARTS
BLOCKS_LEAST: Final = 64
"""Blocks that are left beside as many views as are asked for: a reader of a whole stream of 64
partitions, or some of less."""


@dataclass(frozen=True, slots=True)
class HubBounds:
    """What the streams may take in memory, and the pace at which they are passed on."""

    tail_bytes: int = 4 * MIB
    """Bytes of the latest records kept per stream; readers that are further back read from
    Kafka."""
    tails_bytes: int = 32 * MIB
    """Bytes of all tails together; the largest gives way."""
    tail_back_records: int = 1000
    """Records per partition read back when a stream is first followed, so that clients that come
    back after a restart find them."""
    decoded_bytes: int = 8 * MIB
    """Bytes of events kept decoded for the next reader; the oldest go first."""
    replay_bytes: int = 8 * MIB
    """Bytes of older blocks kept for the next reader; the least used go first."""
    blocks_max: int = 350
    """Blocks of older records, 320 KB at most, that are held while something is made from them: one
    for each partition that a reader finds old. A reader that finds no room waits for its turn."""
    replay_readers: int = 2
    """Kafka readers for older records, for all clients together; each takes some 3 MB."""
    followed_max: int = 200
    """Streams followed at the same time. One more is refused with 503."""
    idle_s: float = 30.0
    """Seconds after which a stream without readers is not followed any more."""
    views_max: int = 2500
    """Different subscriptions at the same time. One more is refused with 503."""
    chunks_bytes: int = 16 * MIB
    """Bytes of what is made ready for clients, of all subscriptions together; the least used go
    first, and are made again if asked for."""
    tick_ms: float = 20.0
    """Events that arrive within this time, ms, are written to the clients together: it adds half of
    it to the latency, and saves work for 1000 clients."""
    slice_ms: float = 2.0
    """Milliseconds of reading and filtering after which sockets have their turn. While clients
    catch up, a new event waits for two or three of them: until it is taken, at its tick, and for
    its turn."""

    @classmethod
    def within(
        cls, memory_bytes: int, *, places: int, followed_max: int, views_max: int | None = None
    ) -> Self:
        """The bounds for which `memory_bytes_max(places=places)` is at most `memory_bytes`.

        It is equal or a little less. `memory_bytes` is at least `least_bytes(places, views_max)`.
        More views (None: their part of the memory) leave less for blocks.
        """
        part = (memory_bytes - _fixed_bytes(places)) // PARTS
        views = VIEW_PARTS * part // VIEW_BYTES if views_max is None else views_max
        blocks = ((VIEW_PARTS + BLOCK_PARTS) * part - views * VIEW_BYTES) // BLOCK_BYTES
        return cls(
            tail_bytes=part,
            tails_bytes=8 * part,
            decoded_bytes=2 * part,
            replay_bytes=2 * part,
            chunks_bytes=4 * part,
            views_max=views,
            blocks_max=blocks,
            followed_max=followed_max,
        )

    def memory_bytes_max(self, *, views: int | None = None, places: int = 0) -> int:
        """Memory for streams and what is made of them, at most, beside the process itself.

            tails_bytes + decoded_bytes + replay_bytes + chunks_bytes + views × VIEW_BYTES +
            replay_readers × READER_BYTES + KAFKA_BYTES + places × CHUNK_BYTES + blocks_max ×
            BLOCK_BYTES

        `views` are different subscriptions (None: as many as are allowed), `places` different
        positions in the past at which chunks are being made. Subscribers at the same position
        share one.
        """
        kept = self.tails_bytes + self.decoded_bytes + self.replay_bytes + self.chunks_bytes
        blocks = self.blocks_max * BLOCK_BYTES
        open_views = self.views_max if views is None else views
        return (
            kept
            + open_views * VIEW_BYTES
            + self.replay_readers * READER_BYTES
            + KAFKA_BYTES
            + places * CHUNK_BYTES
            + blocks
        )


def least_bytes(places: int, views_max: int | None = None) -> int:
    """The least memory that `HubBounds.within` can divide: a tail of 1 MiB, some 600 views."""
    shared = (views_max or 0) * VIEW_BYTES + BLOCKS_LEAST * BLOCK_BYTES
    return _fixed_bytes(places) + PARTS * max(MIB, -(-shared // (VIEW_PARTS + BLOCK_PARTS)))


def _fixed_bytes(places: int) -> int:
    return KAFKA_BYTES + HubBounds().replay_readers * READER_BYTES + places * CHUNK_BYTES


class Full(Unavailable):
    """A limit of this server is reached; another server, or later, will do."""
