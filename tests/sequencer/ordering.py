"""A sequencer of one partition without Kafka: it accepts records, keeps what the real one commits,
and can die at any point.

`Order` is what a vector or a property needs of an implementation: `accept`, `time`, `restart`.
Another implementation is tested by writing this class anew for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewake.cloud.sequencer.order.arrival import Arrival, Output, Statement
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.partition import Partition, Step
from edgewake.protocol.frames.record import Discipline, Placement
from edgewake.protocol.frames.sequence import Position

START_MS = 1_790_000_000_000


class Order:
    """One partition of `ew.up`.

    Every call is a transaction of its own; `restart` is a kill -9 between two of them.
    """

    def __init__(self, **bounds: Any) -> None:
        self.bounds = Bounds(**bounds)
        self.now_s = 0.0
        self.log: list[Mapping[str, Any]] = []
        """`ew.up`."""
        self.rows: dict[int, bytes] = {}
        self.rows_written = 0
        self.position = Position()
        self.partition = Partition(0, self.bounds)

    @property
    def now_ms(self) -> int:
        return START_MS + int(self.now_s * 1000)

    def accept(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Append a record to `ew.up` and process it."""
        self.log.append({"received_at": self.now_ms, **record})
        return self._read(len(self.log) - 1)

    def time(self, to_s: float) -> list[dict[str, Any]]:
        """Let the clock advance to `to_s` seconds after the start."""
        self.now_s = to_s
        return self._commit(
            self.partition.step([], len(self.log), now_s=self.now_s, now_ms=self.now_ms)
        )

    def restart(self) -> list[dict[str, Any]]:
        """Forget everything in memory; what is kept in rows is read again, then `ew.up` from the
        position on.
        """
        self.partition = Partition.restore(0, self.bounds, position=self.position, blocks=self.rows)
        assert self.partition.start_at(0, len(self.log), now_s=self.now_s) == 0
        for offset in range(self.partition.position.read_from, self.partition.next_offset):
            self.partition.replay([arrival(offset, self.log[offset])], offset + 1, now_s=self.now_s)
        out = []
        for offset in range(self.partition.next_offset, len(self.log)):
            out += self._read(offset)
        return out

    def _read(self, offset: int) -> list[dict[str, Any]]:
        step = self.partition.step(
            [arrival(offset, self.log[offset])], offset + 1, now_s=self.now_s, now_ms=self.now_ms
        )
        return self._commit(step)

    def _commit(self, step: Step | None) -> list[dict[str, Any]]:
        if step is None:
            return []
        self.rows |= dict(step.rows)
        self.rows_written += len(step.rows)
        self.position = step.position
        return [shown(one) for one in step.outputs]


def arrival(offset: int, record: Mapping[str, Any]) -> Arrival:
    """A record of a vector (see docs/sequencer.md) as ours."""
    first = record.get("first", record.get("frame", 0))
    last = record.get("last", first)
    readings = record.get("readings", 10 * (last - first + 1))
    placement = Placement(
        Discipline[record.get("discipline", "ordered").upper()],
        record.get("stream", "s"),
        record.get("epoch", 1),
        first,
        last,
        record.get("seq", (first - 1) * 10 + 1),
        readings,
        record.get("content", 0),
    )
    return Arrival(
        offset,
        record.get("device", "a"),
        placement,
        record.get("bytes", 100),
        record["received_at"],
        record.get("sent_at"),
    )


def shown(output: Output) -> dict[str, Any]:
    """What came out, as a vector has it."""
    if isinstance(output, Statement):
        return {
            "statement": str(output.kind),
            "device": output.device,
            "epoch": output.epoch,
            "first": output.first,
            "last": output.last,
            "seq": output.seq,
            "lost": output.lost,
        }
    return (
        {"pass": output.offset}
        | ({"late": True} if output.late else {})
        | ({"shift": output.shift} if output.shift else {})
    )
