"""What a transaction writes, record by record.

ew.s.<stream>   the record as it is, with its origin and what was found out about its clocks; or a
                gap record that the sequencer states
ew.sequence     block rows and positions (state_rows)
ew.devices      when devices were last seen, and what gaps were said of them
ew.dead         what no bridge wrote
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from confluent_kafka import Message, Producer

from edgewake.cloud.kafka import metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.topic_check import broken_partitions
from edgewake.cloud.sequencer.order.arrival import Arrival, Output, Statement
from edgewake.cloud.sequencer.traces import SequencerTraces
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.frame import Frame, Gap
from edgewake.protocol.frames.record import LATE_HEADER, ORIGIN_HEADER, Mode
from edgewake.protocol.ops.device import DeviceGaps, DeviceSeen

log = logging.getLogger("edgewake.sequencer")

FULL_S: Final = 0.1
"""Seconds between attempts to hand a record to Kafka's client when its queue is full."""
BRIDGE_APART_MS: Final = 60_000
"""Smaller differences of a bridge's clock and Kafka's are taken for the way; an event may be five
minutes ahead of its reception."""
LOGGED_MAX: Final = (
    10  # statements of one transaction that are logged one by one; the rest as a number
)


class StreamTopics:
    """The partitions of the streams' topics; makes the missing topics. For several threads."""

    def __init__(self, config: KafkaConfig, client: Admin) -> None:
        self._config, self._client = config, client
        self._counts = metadata.partition_counts(client)
        for broken in broken_partitions(self._counts, config.partitions):
            log.warning("%s", broken.detail, extra={"event": "kafka.topic_setting"})
        self._lock = threading.Lock()

    def ensure(self, streams: Iterable[str]) -> None:
        """Before a transaction begins, for its time is short. Raises Unavailable or LocalError."""
        if all(topics.stream_topic(stream) in self._counts for stream in streams):
            return
        with self._lock:
            new = {topics.stream_topic(stream) for stream in streams} - self._counts.keys()
            topic_admin.ensure_topics(self._config, new, client=self._client)
            counts = metadata.partition_counts(self._client)
            # One that was made this moment may not be listed yet; another process may have made it
            # with another number.
            self._counts |= {
                name: counts.get(name)
                or metadata.partition_count(self._client, name)
                or self._config.partitions
                for name in new
            }

    def partition(self, stream: str, up_partition: int) -> int:
        """The partition that a record goes to."""
        return topics.stream_partition(up_partition, self._counts[topics.stream_topic(stream)])


class OutputWriter:
    """Hands records to one producer; the caller begins and commits."""

    def __init__(
        self,
        producer: Producer,
        *,
        part: str,
        streams: StreamTopics,
        traces: SequencerTraces | None = None,
    ) -> None:
        self._producer, self._part, self._streams = producer, part, streams
        self._traces = traces

    def write(self, up_partition: int, outputs: Sequence[Output], now_ms: int) -> None:
        """What passes of one partition, in order."""
        statements = 0
        places: dict[str, tuple[str, int]] = {}
        for output in outputs:
            if isinstance(output, Arrival):
                stream = output.placement.stream
                place = places.get(stream)
                if place is None:
                    place = places[stream] = (
                        topics.stream_topic(stream),
                        self._streams.partition(stream, up_partition),
                    )
                self._pass_on(up_partition, output, *place)
            else:
                statements += 1
                self._state(up_partition, output, now_ms)
                if statements <= LOGGED_MAX:
                    _log(output)
        if statements > LOGGED_MAX:
            log.warning(
                "%d more such statements in the same transaction",
                statements - LOGGED_MAX,
                extra={"event": "sequence.gaps"},
            )

    def _pass_on(self, up_partition: int, arrival: Arrival, topic: str, partition: int) -> None:
        kept_at = (
            arrival.received_at
            if abs(arrival.received_at - arrival.bridge_at) > BRIDGE_APART_MS
            else None
        )
        headers = [(ORIGIN_HEADER, record.origin(up_partition, arrival.offset))]
        if arrival.late:
            headers.append((LATE_HEADER, b"1"))
        if arrival.trace:
            traces = self._traces
            headers += arrival.trace if traces is None else traces.passed(arrival, up_partition)
        value = arrival.payload.value() if arrival.value is None else arrival.value
        value = record.with_clocks(value, shift=arrival.shift, kept_at=kept_at)
        self.produce(topic, value, arrival.device, partition, arrival.received_at, headers)

    def _state(self, up_partition: int, one: Statement, now_ms: int) -> None:
        frame = Frame(
            one.epoch, one.last, one.seq, (), {}, gap=Gap(one.kind, one.lost), first_frame=one.first
        )
        value = record.encode(
            device=one.device,
            stream=one.stream,
            mode=Mode.ACK,
            sent_at=None,
            received_at=now_ms,
            frame_bytes=frames.encode(frame),
            via=one.via,
        )
        self.produce(
            topics.stream_topic(one.stream),
            value,
            one.device,
            self._streams.partition(one.stream, up_partition),
            now_ms,
        )

    def write_row(self, shard: int, key: str, value: bytes | None, now_ms: int) -> None:
        """A row of `ew.sequence`; None deletes it."""
        self.produce(topics.SEQUENCE, value, key, shard, now_ms)

    def write_seen(self, seen: DeviceSeen, now_ms: int) -> None:
        """When a device was last seen."""
        key = f"{seen.device}|seen|{seen.via}" if seen.via else f"{seen.device}|seen"
        self.produce(topics.DEVICES, seen.to_json(), key, 0, now_ms)

    def write_gaps(self, gaps: DeviceGaps) -> None:
        """What gaps were said of a device."""
        self.produce(topics.DEVICES, gaps.to_json(), f"{gaps.device}|gaps", 0, gaps.at)

    def bury(self, message: Message, now_ms: int) -> None:
        """Somebody else wrote to `ew.up`."""
        origin = f"{topics.UP} {message.partition()}:{message.offset()}"
        letter = DeadLetter(
            reason=RejectReason.SHAPE,
            detail="no placement header of a bridge",
            topic=origin,
            part=self._part,
            received_at=now_ms,
        )
        self.produce(topics.DEAD, message.value(), message.key(), 0, now_ms, letter.headers())

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes | None,
        partition: int,
        timestamp: int,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Hand a record to Kafka's client, however full its queue is. Raises KafkaException."""
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, timestamp=timestamp, headers=headers
                )
            except BufferError:
                self._producer.poll(FULL_S)
            else:
                return


def _log(one: Statement) -> None:
    log.warning(
        "%s, stream %s: frames %d to %d: %s", one.device, one.stream, one.first, one.last,
        one.kind.replace("_", " "),
        extra={"event": f"sequence.{one.kind}", "epoch": one.epoch, "lost_readings": one.lost},
    )  # fmt: skip
