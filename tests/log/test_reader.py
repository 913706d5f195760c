"""The reader alone: whatever the records, the filter and the places where a client leaves, every
wanted event comes once.

Records are written as the bytes that docs/protocol.md shows, and what a client is sent is read line
by line: neither by our own code.
"""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.access.sse import Encoder
from edgewake.cloud.log.decode import Decoder, Record
from edgewake.cloud.log.reader import CHUNK_BYTES, Batch, Reader, Stop
from edgewake.cloud.log.subscription import Plan, Positions, Source, plan
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.cursor import Cursor, CursorCodec, CursorKeys
from edgewake.protocol.leases.lease import Subscription

CODEC = CursorCodec(CursorKeys({1: b"k" * 32}, 1))
STREAMS = ("a", "b")
PARTITIONS = 2

frames = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(1, 4), st.integers(1, 3))
"""Stream, partition, readings, step to the next offset (markers and aborted records lie
between)."""


def filled(sent: list[tuple[int, int, int, int]]) -> tuple[list[list[Tail]], list[int]]:
    """Tails that hold frames with readings 1, 2, 3 … in the order of arrival, and these numbers."""
    tails = [[Tail(0) for _ in range(PARTITIONS)] for _ in STREAMS]
    number = 0
    for order, (stream, partition, readings, step) in enumerate(sent):
        values = [float(number + i + 1) for i in range(readings)]
        number += readings
        head = (
            f'{{"device":"d","stream":"{STREAMS[stream]}","mode":"ack","sent_at":0,"received_at":0,'
        )
        rest = f'"epoch":1,"frame":1,"seq":1,"t":{[0] * readings},"fields":{{"n":{values}}}}}'
        value = f"{head}{rest}".encode()
        tail = tails[stream][partition]
        tail.append(Record(tail.end + step - 1, 0, value, is_result=False, order=order))
    return tails, list(range(1, number + 1))


def a_plan(where: str | None) -> Plan:
    return plan(
        Subscription(streams=STREAMS, where=where),
        [Source(name, name, False, "id", PARTITIONS) for name in STREAMS],
    )


def sent_events(sent: bytes) -> list[tuple[str, dict[str, Any]]]:
    """(id, data) of each event of a stream of events, as WHATWG HTML 9.2.6 reads it: a blank line
    ends an event.
    """
    found = []
    for text in sent.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in text.split("\n"))
        found.append((lines["id"], json.loads(lines["data"])))
    return found


START: Positions = (((0, 0),) * PARTITIONS,) * len(STREAMS)
NO_END = 1 << 60


def reader(chosen: Plan, tails: list[list[Tail]], positions: Positions) -> Reader:
    return Reader(chosen, tails, Decoder(1 << 24), positions, event_bytes=100)


def chunks(
    chosen: Plan, tails: list[list[Tail]], positions: Positions, *, events_at_a_time: int = 0
) -> list[Batch]:
    """All chunks from a position to the end.

    The time of a reader is up after so many looks at the clock; 0: never.
    """
    found = []
    while True:
        current = reader(chosen, tails, positions)
        looks = cycle([*[False] * (events_at_a_time - 1), True] if events_at_a_time else [False])
        while (stop := current.read({}, horizon=NO_END, is_time_up=looks.__next__)) is Stop.TIME:
            pass
        if not current.has_moved:
            return found
        found.append(current.batch(is_at_end=stop is Stop.END))
        positions = found[-1].end


@given(
    st.lists(frames, max_size=30),
    st.lists(st.integers(1, 9), max_size=20),
    st.sampled_from([None, 2, 3]),
)
def test_every_wanted_event_comes_once_and_in_order_wherever_the_client_leaves(
    sent: list[tuple[int, int, int, int]], stays: list[int], every: int | None
) -> None:
    tails, all_numbers = filled(sent)
    chosen = a_plan(None if every is None else f"n % {every} = 0")
    found: list[int] = []
    positions = START
    for stay in [*stays, len(all_numbers)]:
        steps = [step for batch in chunks(chosen, tails, positions) for step in batch.steps]
        events = [
            event
            for batch in chunks(chosen, tails, positions)
            for event in sent_events(Encoder(CODEC, chosen).events(batch))
        ]
        cursors = [cursor_positions(cursor) for cursor, _ in events]
        assert [
            cursor[step.stream][step.partition] for cursor, step in zip(cursors, steps, strict=True)
        ] == [step.position for step in steps]
        found += [int(data["n"]) for _, data in events[:stay]]
        positions = cursors[:stay][-1] if events else positions
    assert found == [n for n in all_numbers if every is None or n % every == 0]


def cursor_positions(text: str) -> Positions:
    cursor = CODEC.decode(text)
    assert isinstance(cursor, Cursor)
    return tuple(entry.partitions for entry in cursor.streams)


@given(st.lists(frames, max_size=60), st.integers(1, 5))
def test_a_reader_whose_time_is_up_makes_the_same_chunks(
    sent: list[tuple[int, int, int, int]], looks: int
) -> None:
    tails, _ = filled(sent)
    chosen = a_plan("n % 2 = 0")
    assert chunks(chosen, tails, START, events_at_a_time=looks) == chunks(chosen, tails, START)


STARTS = 30


def test_readers_that_began_at_different_places_end_at_the_same_ones_soon() -> None:
    """The number of chunks that are made for them is about that of one reader, and not of all."""
    tails, numbers = filled([(i % 2, i // 2 % 2, 4, 1 + i % 3) for i in range(3000)])
    chosen = a_plan(None)
    alone = chunks(chosen, tails, START)
    steps = [step for batch in alone for step in batch.steps]
    assert len(steps) == len(numbers)
    starts = []
    positions = [list(row) for row in START]
    for i, step in enumerate(steps):
        positions[step.stream][step.partition] = step.position
        if i % 293 == 0 and len(starts) < STARTS:
            starts.append(tuple(map(tuple, positions)))
    made = {
        canonical(tails, batch.start): batch
        for start in starts
        for batch in chunks(chosen, tails, start)
    }
    assert len(starts) == STARTS
    assert len(made) < len(alone) + 2 * len(starts)


def canonical(tails: list[list[Tail]], positions: Positions) -> Positions:
    return tuple(
        tuple(tail.canonical(p) for tail, p in zip(row, ps, strict=True))
        for row, ps in zip(tails, positions, strict=True)
    )


def test_chunks_are_bounded_by_what_is_sent_and_not_by_what_is_selected() -> None:
    tails, numbers = filled([(0, 0, 4, 1)] * 3000)
    narrow = plan(
        Subscription(streams=STREAMS, select="n"),
        [Source(name, name, False, "id", PARTITIONS) for name in STREAMS],
    )
    encoder = Encoder(CODEC, narrow)
    sizes = [len(encoder.events(batch)) for batch in chunks(narrow, tails, START)]
    assert sum(sizes) > 70 * len(numbers)
    assert max(sizes) <= CHUNK_BYTES + 1000


def test_chunks_of_hidden_events_move_and_show_nothing() -> None:
    tails, numbers = filled([(0, 0, 4, 1)] * 1000)
    found = chunks(a_plan("n < 0"), tails, START)
    assert [batch.steps for batch in found] == [[]] * len(found)
    assert found[-1].end[0][0] == (len(numbers) // 4, 0)
