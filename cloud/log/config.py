"""Bounds of what a process keeps of Kafka's streams in memory, and the pace at which it passes them
on.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from edgewake.protocol.config import Config

MIB: Final = 1024 * 1024
VIEW_BYTES: Final = 24 * 1024
"""A subscription that is open: its compiled filter, its cohort and its first subscriber."""
READER_BYTES: Final = 3 * MIB
"""A Kafka reader of older records, librdkafka's queues included."""
KAFKA_BYTES: Final = 16 * MIB
"""The reader of new records with its queue, two batches on their way, and the clients for
questions."""
CHUNK_BYTES: Final = 64 * 1024
"""A chunk that is being made."""
BLOCK_BYTES: Final = 320 * 1024
"""A block of older records, 256 KB and a record."""


class HubConfig(Config):
    """Bounds of the streams in memory, and the pace at which they are passed on."""

    tick_ms: float = Field(default=20, ge=1, le=1000)
    """What arrives within so many ms is written to the clients at once: it costs half of that in
    latency, and saves work for 1000 clients."""
    tail_bytes: int = Field(default=4 * MIB, ge=MIB)
    """Bytes of the latest records kept per stream; readers that are further back read from
    Kafka."""
    tails_bytes: int = Field(default=32 * MIB, ge=4 * MIB)
    """Bytes of all tails together; the largest gives way."""
    tail_back_records: int = Field(default=1000, ge=0)
    """Records per partition read back when a stream is first followed, so that clients that come
    back after a restart find them."""
    decoded_bytes: int = Field(default=8 * MIB, ge=MIB)
    """Bytes of events kept decoded for the next reader; the oldest go first."""
    replay_bytes: int = Field(default=8 * MIB, ge=MIB)
    """Bytes of older blocks kept for the next reader; the least used go first."""
    blocks_max: int = Field(default=500, ge=1)
    """Blocks of older records, 320 KB at most, that are held while something is made from them: one
    for each partition that a reader finds old. Who finds no room waits for its turn."""
    replay_readers: int = Field(default=2, ge=1, le=32)
    """Kafka readers for older records, for all clients together; each takes some 3 MB."""
    followed_max: int = Field(default=200, ge=1)
    """Streams followed at the same time. One more is refused with 503."""
    idle_s: float = Field(default=30, ge=0)
    """Seconds after which a stream that nobody reads is followed no longer."""
    views_max: int = Field(default=500, ge=1)
    """Different subscriptions at the same time. One more is refused with 503."""
    chunks_bytes: int = Field(default=16 * MIB, ge=MIB)
    """Bytes of what is made ready for clients, of all subscriptions together; the least used go
    first, and are made again if asked for."""
    slice_ms: float = Field(default=2, ge=0.5, le=100)
    """Milliseconds of reading and filtering after which sockets have their turn. While clients
    catch up, a new event waits for two or three of them: until it is taken, at its tick, and for
    its turn."""

    def memory_bytes_max(self, *, views: int | None = None, places: int = 0) -> int:
        """Memory for streams and what is made of them, at most, beside the process itself:

            tails_bytes + decoded_bytes + replay_bytes + chunks_bytes + views × VIEW_BYTES +
            replay_readers × READER_BYTES + KAFKA_BYTES + places × CHUNK_BYTES + blocks_max ×
            BLOCK_BYTES

        `views` are different subscriptions (None: as many as are allowed), `places` different
        positions in the past at which chunks are being made. Whoever stands at the same place
        shares one.
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
