"""The reader alone: whatever the records, the filter and the places where a client leaves, every wanted event comes once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.access.sse import Encoder
from edgewake.cloud.log.decode import Decoder, Record
from edgewake.cloud.log.reader import BATCH_EVENTS, Reader
from edgewake.cloud.log.subscription import Plan, Positions, Source, plan
from edgewake.cloud.log.tail import Tail
from edgewake.edge.client.sse import Parser
from edgewake.protocol import frame, record
from edgewake.protocol.cursor import CursorCodec
from edgewake.protocol.frame import Frame
from edgewake.protocol.lease import Subscription
from edgewake.protocol.record import Mode

CODEC = CursorCodec({1: b"k" * 32})
STREAMS = ("a", "b")
PARTITIONS = 2

frames = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(1, 4), st.integers(1, 3))
"""Stream, partition, readings, step to the next offset (markers and aborted records lie between)."""


def filled(sent: list[tuple[int, int, int, int]]) -> tuple[list[list[Tail]], list[int]]:
    """Tails that hold frames with readings 1, 2, 3 … in the order of arrival, and these numbers."""
    tails = [[Tail(0) for _ in range(PARTITIONS)] for _ in STREAMS]
    number = 0
    for arrival, (stream, partition, readings, step) in enumerate(sent):
        values = [float(number + i + 1) for i in range(readings)]
        number += readings
        body = frame.encode(Frame(1, 1, 1, [0] * readings, {"n": values}))
        value = record.encode(device="d", stream=STREAMS[stream], mode=Mode.ACK, sent_at=0, received_at=0, frame_bytes=body)
        tail = tails[stream][partition]
        tail.append(Record(tail.end + step - 1, 0, value, is_result=False, arrival=arrival))
    return tails, list(range(1, number + 1))


def a_plan(where: str | None) -> Plan:
    return plan(Subscription(streams=STREAMS, where=where), [Source(name, name, False, "id", PARTITIONS) for name in STREAMS])


START: Positions = (((0, 0),) * PARTITIONS,) * len(STREAMS)


@given(st.lists(frames, max_size=30), st.lists(st.integers(1, 9), max_size=20), st.sampled_from([None, 2, 3]))
def test_every_wanted_event_comes_once_and_in_order_of_arrival_wherever_the_client_leaves(
    sent: list[tuple[int, int, int, int]], stays: list[int], every: int | None
) -> None:
    tails, all_numbers = filled(sent)
    chosen = a_plan(None if every is None else f"n % {every} = 0")
    found: list[int] = []
    positions = START
    for stay in [*stays, len(all_numbers)]:
        batch = Reader(chosen, tails, Decoder(1 << 20), positions).read_tails()
        parser = Parser()
        events = parser.feed(Encoder(CODEC, chosen, checkpoint_events=False).events(batch))
        assert [CODEC.decode(event.id).positions[step.stream][step.partition] for event, step in zip(events, batch.steps, strict=True)] == [
            step.position for step in batch.steps
        ]
        taken = events[:stay]
        found += [int(step.event.fields["n"]) for step in batch.steps[:stay]]
        positions = CODEC.decode(taken[-1].id).positions if taken else positions
    assert found == [n for n in all_numbers if every is None or n % every == 0]


@given(st.lists(frames, max_size=30), st.lists(frames, max_size=30))
def test_a_reader_that_catches_up_to_a_view_stands_exactly_there(
    before: list[tuple[int, int, int, int]], after: list[tuple[int, int, int, int]]
) -> None:
    tails, numbers = filled(before)
    view = Reader(a_plan(None), tails, Decoder(1 << 20), START)
    view.read_tails()
    there = view.positions
    later, _ = filled(before + after)
    reader = Reader(a_plan(None), later, Decoder(1 << 20), START)
    batch = reader.read_tails(until=there)
    assert [int(step.event.fields["n"]) for step in batch.steps] == numbers
    assert reader.is_at(there)


def test_a_batch_of_hidden_events_ends_too_and_says_that_it_moved() -> None:
    tails, numbers = filled([(0, 0, 4, 1)] * (BATCH_EVENTS // 4 + 10))
    reader = Reader(a_plan("n < 0"), tails, Decoder(1 << 24), START)
    first, second = reader.read_tails(), reader.read_tails()
    assert (first.full, first.untold, first.steps) == (True, True, [])
    assert (second.full, second.untold) == (False, True)
    assert reader.positions[0][0] == (len(numbers) // 4, 0)
