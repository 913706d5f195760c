"""The sequencer: `ew.up` in, `ew.s.<stream>` out, each frame once and in order per device.

    membership ─ shards gained ─ claimed ─ restored and replayed in threads beside the loop ─┐ ew.up
    ─ batch ─ by shard ─ order ─ one transaction for all of a turn ────────────────────┴─ ew.s.*,
    ew.sequence

Its processes share 16 shards of four partitions each. A shard that moves stops only itself. After
any failure nothing in memory is trusted: the session ends, and the next one reads states and
positions as Kafka has them. A process that finds another one under its own name ends (LocalError).
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Message

from edgewake.cloud.kafka import clients, group_names, topic_admin
from edgewake.cloud.sequencer.config import SequencerConfig
from edgewake.cloud.sequencer.lag import READY_LAG_S, Lag, lag
from edgewake.cloud.sequencer.membership import Membership, NameTaken
from edgewake.cloud.sequencer.metrics import SequencerMetrics
from edgewake.cloud.sequencer.order.partition import Partition
from edgewake.cloud.sequencer.output_writer import OutputWriter, StreamTopics
from edgewake.cloud.sequencer.replay import replay
from edgewake.cloud.sequencer.shard import Shard, Turn
from edgewake.cloud.sequencer.traces import SequencerTraces
from edgewake.cloud.sequencer.transactions import SessionTransactions
from edgewake.cloud.sequencer.up_reader import UpReader
from edgewake.cloud.traces.tracer import open_tracer
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.sequencer")

POLL_S: Final = 0.1
"""Seconds to wait for a record before timers are checked."""
PUBLISH_S: Final = 1.0
"""Seconds between two publications of positions and lag."""
LEAVE_S: Final = 2.0
"""Seconds that a leaving session spends on taking its claims back; otherwise its successor fences
it."""
RESTORES_MAX: Final = 4
"""Shards that are restored side by side; the ones that are served go on meanwhile."""


class Restored(NamedTuple):
    """A shard, restored to its position in the process before."""

    shard: Shard
    ends: Mapping[int, int]
    """Partition → offset after its last record."""
    overtaken: int
    """Records that Kafka deleted before they were passed on."""


class Restoring(NamedTuple):
    """A shard that is being restored."""

    future: Future[Restored]
    wanted: threading.Event
    """Cleared when the shard is taken from us before."""


class Sequencer:
    """Runs sessions until it is stopped."""

    def __init__(
        self,
        config: SequencerConfig,
        *,
        clock: Clock,
        rng: random.Random,
        stop: threading.Event,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_turn` is called each time the loop runs: a sign of life."""
        self._on_turn = on_turn
        self._config = config
        self._clock = clock
        self._stop = stop
        self._rng = rng
        self._backoff = Backoff(rng)
        self.tracer = open_tracer(config.traces, part="sequencer", name=config.name)
        self._traces = None if self.tracer is None else SequencerTraces(self.tracer, clock)
        self.metrics = SequencerMetrics()
        self._was_ready = False
        self._lost_by = ""
        """The error that ended the last session, until another session serves."""

    def why_not_ready(self) -> str:
        """The reason why it is not ready.

        It is empty while all its shards are served, at most READY_LAG_S behind.
        """
        metrics = self.metrics
        if metrics.ready:
            return ""
        if self._lost_by:
            return self._lost_by
        if metrics.lag_s > READY_LAG_S:
            return f"{metrics.lag_s:.0f} s behind"
        return "joins the others, or restores its shards"

    def run(self) -> None:
        """Serve until stopped. Raises LocalError when another process took our name."""
        while not self._stop.is_set():
            self._on_turn()
            session: Session | None = None
            try:
                # An id that no session had: who takes a shard over fences the id that claimed it,
                # and would otherwise end our next session with the one that was given up.
                transactional_id = f"sequencer-{self._config.name}-{self._rng.getrandbits(64):016x}"
                session = Session(
                    self._config,
                    transactional_id,
                    clock=self._clock,
                    metrics=self.metrics,
                    on_serving=self._on_serving,
                    traces=self._traces,
                )
                while not self._stop.is_set():
                    self._on_turn()
                    session.step()
            except (KafkaException, Unavailable) as error:
                self.metrics.transactions["failed"] += 1
                wait_s = self._backoff.next_s()
                self._lost_by = _text(error)
                log.warning(
                    "sequencer session lost, restarting in %.1f s: %s",
                    wait_s,
                    _text(error),
                    extra={"event": "sequencer.session_lost"},
                )
                self._stop.wait(wait_s)
            except NameTaken as error:
                if session is not None:
                    session.close()
                    session = None
                if self._is_name_in_use():
                    raise
                log.warning(
                    "fenced, but no member has our name: %s",
                    error,
                    extra={"event": "sequencer.session_lost"},
                )
            finally:
                self.metrics.ready = False
                if session is not None:
                    session.close()

    def _is_name_in_use(self) -> bool:
        config = self._config
        return group_names.is_in_use(
            config.kafka,
            topics.SEQUENCER_GROUP,
            config.name,
            session_s=config.session_s,
            clock=self._clock,
            pause=self._stop.wait,
        )

    def _on_serving(self, shards: Sequence[int]) -> None:
        self._backoff.reset()
        self._lost_by = ""
        log.info("serves shards %s", list(shards), extra={"event": "sequencer.assigned"})
        if not self._was_ready:
            self._was_ready = True
            log.info("%s serves", self._config.name, extra={"event": "part.ready"})


def _text(error: Exception) -> str:
    return str(error.args[0].str() if isinstance(error, KafkaException) else error)


class Session:
    """One membership of the group: from joining to the first failure."""

    def __init__(
        self,
        config: SequencerConfig,
        transactional_id: str,
        *,
        clock: Clock,
        metrics: SequencerMetrics,
        on_serving: Callable[[Sequence[int]], None],
        traces: SequencerTraces | None = None,
    ) -> None:
        """`transactional_id`: one that no session has had before."""
        self._config = config
        self._traces = traces
        self._clock = clock
        self._metrics = metrics
        self._on_serving = on_serving
        self._shards: dict[int, Shard] = {}
        self._restoring: dict[int, Restoring] = {}
        self._published_s = float("-inf")
        admin = clients.admin(config.kafka)
        topic_admin.ensure_topics(
            config.kafka, [topics.UP, topics.SEQUENCE, topics.DEVICES, topics.DEAD], client=admin
        )
        self._streams = StreamTopics(config.kafka, admin)
        self._transactions = SessionTransactions(config.kafka, transactional_id)
        self._writer = OutputWriter(
            self._transactions.producer, part=config.name, streams=self._streams, traces=traces
        )
        self._to_claim: set[int] = set()
        self._claimed: set[int] = set()
        self._is_whole = True
        self._restores = ThreadPoolExecutor(RESTORES_MAX, "restore")
        self._reader = UpReader(config.kafka, config.name, clock=clock)
        self._membership = Membership(
            config.kafka,
            config.name,
            session_s=config.session_s,
            on_gained=self._gain,
            on_lost=self._lose,
        )

    def close(self) -> None:
        """Leave the group; what was not committed is read again."""
        self._membership.close()  # which revokes what is assigned
        self._restores.shutdown(cancel_futures=True)
        self._transactions.close()
        self._reader.close()

    # The group: called within `poll`, when no transaction is open

    def _gain(self, shards: Sequence[int]) -> None:
        self._metrics.ready = False
        self._to_claim |= set(shards)

    def _claim(self) -> None:
        """Claim the shards that were gained, so that they can be restored.

        From now on the next process to serve them must fence this one first.
        """
        if not self._to_claim:
            return
        self._transactions.claim(self._to_claim)
        claimed, self._to_claim = sorted(self._to_claim), set()
        self._claimed |= set(claimed)
        for number in claimed:
            wanted = threading.Event()
            wanted.set()
            self._restoring[number] = Restoring(
                self._restores.submit(self._restore, number, wanted.is_set), wanted
            )

    def _restore(self, number: int, is_wanted: Callable[[], bool]) -> Restored:
        """Restore the shard from its rows, then from the records after them, beside the loop."""
        started_s = self._clock.monotonic_s()
        shard = Shard.serve(
            number,
            self._config.kafka,
            part=self._config.name,
            bounds=self._config.bounds(),
            transactions=self._transactions,
            is_wanted=is_wanted,
        )
        ranges = {partition: self._reader.range(partition) for partition in shard.partitions}
        overtaken = sum(
            self._start_at(partition, *ranges[partition.number])
            for partition in shard.partitions.values()
        )
        restored_s = self._clock.monotonic_s()
        count = replay(
            shard,
            self._config.kafka,
            part=self._config.name,
            clock=self._clock,
            is_wanted=is_wanted,
        )
        rows_s, replay_s = restored_s - started_s, self._clock.monotonic_s() - restored_s
        log.info(
            "restored shard %d: %d states in %.1f s, %d records in %.1f s", number, shard.states,
            rows_s, count, replay_s,
            extra={"event": "sequencer.restored", "shard": number, "states": shard.states,
                "records": count},
        )  # fmt: skip
        return Restored(
            shard, {partition: high for partition, (_, high) in ranges.items()}, overtaken
        )

    def _lose(self, shards: Sequence[int]) -> None:
        self._to_claim -= set(shards)
        for number in shards:
            restoring, shard = self._restoring.pop(number, None), self._shards.pop(number, None)
            if restoring is not None:
                restoring.wanted.clear()
                restoring.future.cancel()
            if shard is not None:
                self._reader.remove(shard.partitions)
        self._take_back(self._claimed & set(shards))
        log.info("gives up shards %s", list(shards), extra={"event": "sequencer.revoked"})
        self._metrics.shards = len(self._shards)

    def _take_back(self, claimed: set[int]) -> None:
        """Take back the claims of shards that this session no longer writes.

        The next process to serve them need not fence this one, which may go on with others.
        """
        self._claimed -= claimed
        if not claimed or not self._is_whole:
            return
        try:
            self._transactions.take_back(claimed, LEAVE_S)
        except KafkaException as error:
            self._is_whole = False
            log.info(
                "the claims of shards %s stay: %s",
                sorted(claimed),
                _text(error),
                extra={"event": "sequencer.claims_stay"},
            )

    def _adopt_restored(self) -> None:
        """Read the partitions of shards that are restored."""
        ready = [number for number, one in self._restoring.items() if one.future.done()]
        for number in ready:
            shard, ends, overtaken = self._restoring.pop(number).future.result()
            self._metrics.outcomes["overtaken"] += overtaken
            self._reader.add(
                {partition: one.next_offset for partition, one in shard.partitions.items()}, ends
            )
            self._shards[number] = shard
        if ready:
            self._metrics.shards = len(self._shards)
            if not self._restoring:
                # At once, for somebody may wait for us to be ready.
                self._published_s = float("-inf")
                self._on_serving(sorted(self._shards))

    def _start_at(self, partition: Partition, low: int, high: int) -> int:
        """Compare a partition's position with Kafka's offsets.

        Return the records deleted unread.
        """
        wanted = partition.position
        lost = partition.start_at(low, high, now_s=self._clock.monotonic_s())
        if lost:
            log.error(
                "partition %d of %s: offset %d is next, but Kafka keeps %d to %d: %d records were "
                "deleted before they were sequenced",
                partition.number, topics.UP, wanted.emitted_before, low, high, lost,
                extra={"event": "sequencer.overtaken", "lost_records": lost},
            )  # fmt: skip
        elif wanted.read_from >= 0 and not low <= wanted.emitted_before <= high:
            log.error(
                "partition %d of %s: offset %d is next, but Kafka has %d to %d: was the topic "
                "recreated?",
                partition.number, topics.UP, wanted.emitted_before, low, high,
                extra={"event": "sequencer.topic_changed"},
            )  # fmt: skip
        return lost

    # One turn

    def step(self) -> None:
        """Read available records, order them, and commit.

        Raises KafkaException, Unavailable or LocalError; then this session is over.
        """
        self._membership.poll(0 if self._shards else POLL_S)
        if not self._is_whole:
            raise Unavailable("the claims of shards that were given away could not be taken back")
        self._claim()
        self._adopt_restored()
        batches: dict[int, dict[int, list[Message]]] = defaultdict(dict)
        read = self._reader.batch(self._config.batch_records, POLL_S)
        for partition, messages in read.items():
            batches[topics.shard_of(partition)][partition] = messages
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        busy = [
            shard
            for number, shard in self._shards.items()
            if number in batches or shard.is_due(now_s)
        ]
        self._is_whole = False  # until it is committed, what the shards know is not
        try:
            self._commit(
                {
                    shard: shard.turn(batches.get(shard.number, {}), now_s=now_s, now_ms=now_ms)
                    for shard in busy
                },
                now_s,
                now_ms,
            )
        except KafkaException as error:
            if clients.is_fenced(error.args[0]):
                self._membership.raise_if_name_taken(self._clock)
            raise
        self._is_whole = True
        if batches:
            self._metrics.transactions["committed"] += 1
            oldest_ms = min(
                messages[0].timestamp()[1]
                for batch in batches.values()
                for messages in batch.values()
            )
            self._metrics.latency.add((self._clock.now_ms() - oldest_ms) / 1000)
        if now_s - self._published_s >= PUBLISH_S:
            self._published_s = now_s
            self._publish(now_ms)

    def _commit(self, turns: Mapping[Shard, Turn], now_s: float, now_ms: int) -> None:
        written = {shard: turn for shard, turn in turns.items() if shard.has_to_write(turn, now_s)}
        if written:
            self._streams.ensure(set().union(*(turn.streams for turn in written.values())))
            if self._traces is not None:
                self._traces.begin()
            with self._transactions.transaction():
                for shard, turn in written.items():
                    shard.write(turn, self._writer, now_s=now_s, now_ms=now_ms)
            if self._traces is not None:
                self._traces.committed()
        for turn in turns.values():
            self._metrics.outcomes.update(turn.outcomes)

    def _publish(self, now_ms: int) -> None:
        metrics = self._metrics
        partitions = [
            partition for shard in self._shards.values() for partition in shard.partitions.values()
        ]
        metrics.held = sum(one.order.held for one in partitions)
        metrics.held_bytes = sum(one.order.held_bytes for one in partitions)
        metrics.open_holes = sum(one.order.open_holes for one in partitions)
        metrics.states = sum(len(one.order.table) for one in partitions)
        metrics.states_bytes = sum(one.order.table.memory_bytes for one in partitions)
        metrics.lags = {
            one.number: self._lag(
                one.number, one.position.emitted_before, one.position.received_at, now_ms
            )
            for one in partitions
        }
        metrics.ready = (
            self._membership.is_joined and not self._restoring and metrics.lag_s <= READY_LAG_S
        )
        if partitions:
            self._membership.publish(
                {one.number: max(one.position.emitted_before, 0) for one in partitions}
            )

    def _lag(self, number: int, position: int, received_at: int, now_ms: int) -> Lag:
        return lag(
            end=self._reader.end(number), position=position, received_at=received_at, now_ms=now_ms
        )
