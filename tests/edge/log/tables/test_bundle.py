"""Readings in columns, on their way to batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.tables.bundle import Bundle, Pile, batches_of
from edgewake.edge.log.tables.codec import Reading, readings_of
from edgewake.edge.log.writing.queue import Queues
from edgewake.protocol.frames.field_type import types_of
from tests.edge.helpers import Sent, opened, reading
from tests.edge.intake.test_intake import intake
from tests.services import PATIENCE_S

NOW_MS = 1_790_000_000_000
COLUMNS = (
    st.integers(-9, 9) | st.none(),
    st.floats(0, 1),
    st.text("aä", min_size=1, max_size=30),
    st.booleans(),
    st.none(),
)


@st.composite
def parts(draw: st.DrawFn) -> Sequence[Reading]:
    """A bundle, or readings that came one by one."""
    columns = {
        name: draw(st.sampled_from(COLUMNS))
        for name in draw(st.sampled_from([("a",), ("a", "b"), ("b", "c")]))
    }
    bodies = draw(st.lists(st.fixed_dictionaries(columns), min_size=8, max_size=12))
    found = intake().check_all([{"t": NOW_MS + n, **body} for n, body in enumerate(bodies)])
    assert isinstance(found, Bundle)
    return found if draw(st.booleans()) else list(found)


@given(st.lists(parts(), min_size=1, max_size=6), st.integers(1, 30), st.integers(60, 600))
def test_batches_hold_each_reading_once_in_order_within_their_bounds(
    found: list[Sequence[Reading]], most: int, bytes_max: int
) -> None:
    pile = Pile(found)
    batches = list(batches_of(pile, readings_max=most, bytes_max=bytes_max))
    assert [one for batch in batches for one in readings_of(batch.body)] == [
        (t, {name: value for name, value in fields.items() if value is not None})
        for t, fields in pile
    ]
    assert [batch.count for batch in batches] == [len(readings_of(batch.body)) for batch in batches]
    for batch in batches:
        types_of(orjson.loads(batch.body)["fields"])  # raises where a column mixes two
        assert batch.count <= most
        assert len(batch.body) <= bytes_max or batch.count == 1


@given(parts(), st.integers(0, 12), st.integers(0, 12))
def test_a_bundle_is_a_sequence_of_its_readings(
    found: Sequence[Reading], first: int, last: int
) -> None:
    whole = list(found)
    pile = Pile([found, found])
    assert [found[n] for n in range(len(found))] == whole
    assert list(found[first:last]) == whole[first:last]
    assert (len(pile), list(pile), list(pile[first:]), pile[-1]) == (
        2 * len(whole),
        whole + whole,
        (whole + whole)[first:],
        whole[-1],
    )


def bundle(numbers: range, **fields: object) -> Sequence[Reading]:
    found = intake().check_all(
        [{"t": t, **values} for t, values in (reading(n, **fields) for n in numbers)]
    )
    assert isinstance(found, Bundle)
    return found


def test_bundles_that_follow_each_other_are_one_batch() -> None:
    pile = Pile(
        [
            bundle(range(10)),
            bundle(range(10, 20)),
            [reading(20)],
            bundle(range(21, 30)),
            bundle(range(30, 40), text="x"),
        ]
    )
    assert [batch.count for batch in batches_of(pile, readings_max=1_000, bytes_max=10_000)] == [
        20,
        1,
        9,
        10,
    ]


def test_bundles_and_single_readings_keep_their_order_to_the_cloud(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path, sent=sent, config=LogConfig(linger_ms=100, reserve_bytes=0)) as events:
        log = events.stream("speed")
        log.append(reading(0))
        log.append_all(bundle(range(1, 30)))
        log.append_all([reading(30), reading(31)])
        log.append(reading(32))
        log.append_all(Pile([bundle(range(33, 50)), [reading(50)]]), position=("source", "50"))
        assert log.wait_accepted(51, timeout_s=PATIENCE_S)
        assert events.position("source") == "50"
        events.start_sending()
        sent.until(6)
    assert sent.ns() == list(range(51))


def test_bundles_fill_a_queue_by_their_readings_and_their_bytes() -> None:
    queues = Queues(readings_max=100, bytes_max=1 << 20)
    queue = queues.of("s", Lane.NORMAL)
    queues.add(queue, bundle(range(60)))
    assert (queues.has_room(queue), queue.count, queues.longest) == (True, 60, 60)
    queues.add(queue, [reading(60)])
    queues.add(queue, bundle(range(61, 100)))
    assert (queues.has_room(queue), queue.appended, queues.waiting_streams) == (False, 100, ["s"])
    taken = queues.take()
    assert ([fields["n"] for _, fields in taken["s"]], queue.count) == (list(range(100)), 0)
    queues.accepted(taken)
    assert (queues.size, queue.accepted, queues.has_room(queue)) == (0, 100, True)
    queues.add(queue, bundle(range(20), text="ä" * 7_000))
    assert 20 * 7_000 * 2 <= queues.size <= (1 << 20)
    assert queues.size == queue.size
