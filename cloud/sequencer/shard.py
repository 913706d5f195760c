"""A shard: the partitions of `ew.up` that move together from process to process.

It turns their records into transactions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Message

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.sequencer.order.arrival import Arrival, Statement
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.gaps_said import GapsSaid
from edgewake.cloud.sequencer.order.partition import Partition, Step
from edgewake.cloud.sequencer.order.seen import Seen
from edgewake.cloud.sequencer.order.state_rows import block_key, decode_block_key
from edgewake.cloud.sequencer.output_writer import OutputWriter
from edgewake.cloud.sequencer.transactions import SessionTransactions, claim_key, claimed_by
from edgewake.cloud.traces.tracer import of_headers
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames import record
from edgewake.protocol.frames.corrected_time import corrected_ms
from edgewake.protocol.frames.record import PLACEMENT_HEADER, Placement
from edgewake.protocol.frames.sequence import (
    POSITION_KEY,
    Position,
    decode_positions,
    encode_positions,
)

log = logging.getLogger("edgewake.sequencer")


class Turn(NamedTuple):
    """What a turn gives of a shard, for its transaction."""

    steps: Mapping[int, Step]
    """The step of each partition."""
    foreign: Sequence[Message]
    """Records that no bridge wrote."""
    outcomes: Counter[str]
    """What became of the records (SequencerMetrics.outcomes)."""

    @property
    def streams(self) -> set[str]:
        """The streams whose topics must exist."""
        return {output.stream for step in self.steps.values() for output in step.outputs}


class Shard:
    """A shard that this process serves; `serve` makes one. For one thread only."""

    def __init__(self, number: int, *, ended: Sequence[str] = ()) -> None:
        """`ended`: sessions that were shut out, whose claims are still to be removed."""
        self.number = number
        self.partitions: dict[int, Partition] = {}
        self._ended = tuple(ended)
        self._seen = Seen()
        self._gaps = GapsSaid()

    @classmethod
    def serve(
        cls,
        number: int,
        config: KafkaConfig,
        *,
        part: str,
        bounds: Bounds,
        transactions: SessionTransactions,
        is_wanted: Callable[[], bool],
    ) -> Shard:
        """Take over a shard that this session has claimed.

        It fences the earlier owner, then reads what that one knew. Raises KafkaException or
        Unavailable.
        """
        rows = _Rows(transactions.id)
        table = TableReader(
            config,
            f"{part}-state",
            {topics.SEQUENCE: rows.change},
            partition=number,
            wait_ms=clients.ONCE_WAIT_MS,
        )
        shut_out: set[str] = set()
        try:
            while True:
                # Only what is committed can be read, and an open transaction of who died hides the
                # rest, but not that one's claim.
                table.read_committed(is_wanted=is_wanted)
                if not (others := rows.before - shut_out):
                    table.read_all(is_wanted=is_wanted)
                    others = rows.before - shut_out
                if not others:
                    break
                transactions.shut_out(others)
                shut_out |= others
            if not rows.is_mine:
                raise Unavailable(f"shard {number} was claimed by another session by now")
        finally:
            table.close()
        shard = cls(number, ended=sorted(shut_out & rows.before))
        for partition in range(number, topics.UP_PARTITIONS, topics.SHARDS):
            shard.partitions[partition] = Partition.restore(
                partition,
                bounds,
                position=rows.positions.get(partition, Position()),
                blocks=rows.blocks.get(partition, {}),
            )
        return shard

    def replay(self, number: int, messages: Sequence[Message], *, now_s: float) -> None:
        """Repeat what these records of a partition changed; they were passed on before."""
        found = [_arrival(message, []) for message in messages]
        arrivals = [arrival for arrival in found if arrival is not None]
        self.partitions[number].replay(arrivals, messages[-1].offset() + 1, now_s=now_s)

    @property
    def states(self) -> int:
        """Devices, epochs and streams that it knows."""
        return sum(len(partition.order.table) for partition in self.partitions.values())

    def is_due(self, now_s: float) -> bool:
        """Is there something to do without records?"""
        return (
            bool(self._ended)
            or self._tells(now_s)
            or any(partition.is_due(now_s) for partition in self.partitions.values())
        )

    def turn(self, batches: Mapping[int, Sequence[Message]], *, now_s: float, now_ms: int) -> Turn:
        """Put the records in order. What is not committed afterwards must not be built upon."""
        outcomes: Counter[str] = Counter()
        foreign: list[Message] = []
        steps: dict[int, Step] = {}
        for number, partition in self.partitions.items():
            batch = batches.get(number, ())
            if not batch and not partition.is_due(now_s):
                continue
            position = (
                batch[-1].offset() + 1 if batch else max(partition.position.emitted_before, 0)
            )
            found = [_arrival(message, foreign) for message in batch]
            arrivals = [arrival for arrival in found if arrival is not None]
            step = partition.step(arrivals, position, now_s=now_s, now_ms=now_ms)
            if step is not None:
                steps[number] = step
            outcomes += partition.order.outcomes
            partition.order.outcomes.clear()
        outcomes["foreign"] += len(foreign)
        return Turn(steps, foreign, outcomes)

    def has_to_write(self, turn: Turn, now_s: float) -> bool:
        """Does it need a transaction?"""
        return bool(turn.steps or self._ended) or self._tells(now_s)

    def _tells(self, now_s: float) -> bool:
        """Has it something to tell operators about devices?"""
        return self._seen.is_due(now_s) or self._gaps.is_due(now_s)

    def write(self, turn: Turn, writer: OutputWriter, *, now_s: float, now_ms: int) -> None:
        """Within a transaction. Raises KafkaException."""
        for number, step in turn.steps.items():
            writer.write(number, step.outputs, now_ms)
            for block, row in step.rows:
                writer.write_row(self.number, block_key(number, block), row, now_ms)
            self._note_seen(number, step)
        for message in turn.foreign:
            writer.bury(message, now_ms)
        for seen in self._seen.due(now_s):
            writer.write_seen(seen, now_ms)
        for gaps in self._gaps.due(now_s, now_ms=now_ms):
            writer.write_gaps(gaps)
        for ended in self._ended:
            writer.write_row(self.number, claim_key(ended), None, now_ms)
        if turn.steps or self._ended:
            positions = {
                number: partition.position for number, partition in self.partitions.items()
            }
            writer.write_row(self.number, POSITION_KEY, encode_positions(positions), now_ms)
        self._ended = ()

    def _note_seen(self, number: int, step: Step) -> None:
        absences = self.partitions[number].order.absences
        for output in step.outputs:
            if isinstance(output, Statement):
                self._gaps.note(output)
            else:
                placement, via = output.placement, output.placement.via
                self._seen.note(
                    output.device,
                    placement.stream,
                    received_at=output.received_at,
                    sent_at=output.sent_at,
                    via=via,
                    newest=_newest(output) if via else 0,
                    readings=placement.readings if placement.first == placement.last else 0,
                    is_offline=via != "" and absences.is_offline(output.device, via),
                )


def _newest(arrival: Arrival) -> int:
    """Its latest event time, where it says one; a clock that is ahead counts as the cloud's."""
    newest = arrival.placement.newest
    return newest and corrected_ms(newest, shift=arrival.shift, received_at=arrival.received_at)


class _Rows:
    """The latest rows of a shard."""

    def __init__(self, own: str) -> None:
        self._own = own
        self.is_mine = False
        """Has our session claimed it, and none after us?"""
        self.before: set[str] = set()
        """Sessions that claimed it before ours, and did not take that back."""
        self.positions: dict[int, Position] = {}
        self.blocks: dict[int, dict[int, bytes]] = {}

    def change(self, key: str, value: bytes | None) -> None:
        if (claimant := claimed_by(key)) is not None:
            self._claim(claimant, is_taken_back=value is None)
        elif value is None:
            return
        elif key == POSITION_KEY:
            self.positions = decode_positions(value)
        else:
            partition, block = decode_block_key(key)
            self.blocks.setdefault(partition, {})[block] = value

    def _claim(self, claimant: str, *, is_taken_back: bool) -> None:
        if claimant == self._own:
            self.is_mine = not is_taken_back
        elif is_taken_back:
            self.before.discard(claimant)
        elif self.is_mine:
            self.is_mine = False
        else:
            self.before.add(claimant)


def _arrival(message: Message, foreign: list[Message]) -> Arrival | None:
    """A bridge's record; any other goes to `foreign`."""
    key, value = message.key(), message.value()
    headers = message.headers() or ()
    for name, header in headers:
        if name == PLACEMENT_HEADER and key is not None:
            try:
                placement = Placement.decode(header)
                sent_at, bridge_at = record.times_of(value)
                return Arrival(
                    message.offset(),
                    key.decode(),
                    placement,
                    len(value),
                    message.timestamp()[1],
                    sent_at,
                    bridge_at,
                    message,
                    trace=of_headers(headers) if len(headers) > 1 else (),
                )
            except (ValueError, TypeError):
                break
    foreign.append(message)
    return None
