"""Streams that are not sent: logged for consumers, never framed, and gone when all have passed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.consumers import LAGGED
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.tables.streams import StreamState
from tests.edge.helpers import Sent, opened, put
from tests.edge.log.tables.test_consumers import batches, drain, everything, missed, ns
from tests.services import wait_until

pytestmark = pytest.mark.usefixtures("short_waits")

LOCAL = frozenset({"speed"})


@contextmanager
def sending(
    directory: Path, sent: Sent, *, local: frozenset[str], boot: str = "boot"
) -> Iterator[EventLog]:
    with opened(directory, sent=sent, local=local, boot=boot) as events:
        events.start_sending()
        yield events


def test_it_is_kept_for_its_consumers_and_no_frame_is_made_of_it(tmp_path: Path) -> None:
    sent = Sent()
    with sending(tmp_path, sent, local=LOCAL) as events:
        mean = events.open_consumer("mean", ["speed"])
        put(events, range(1, 31))
        put(events, range(3), "derived")
        assert sent.until(1)[0].fields["n"] == [0, 1, 2]
        assert everything(mean, 30) == list(range(1, 31))
        assert events.status().backlog_readings == 3, "only what is sent waits for the cloud"
        mean.submit(mean.cursor).result(10)
        sent.acknowledge(events)
        wait_until(lambda: batches(events) == 0, "all passed")
        assert {out.key.stream for out in sent} == {"derived"}
        assert events._writer.ask(
            lambda store: (store.stored_bytes, store._state.retained_bytes)
        ).result() == (0, 0)


def test_it_is_not_kept_where_nobody_reads_it(tmp_path: Path) -> None:
    with opened(tmp_path, local=LOCAL) as events:
        put(events, range(1, 31))
        assert batches(events) == 0
        assert events.status().stored_bytes == 0


def test_what_its_consumer_has_not_read_is_there_after_a_restart_and_after_damage(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, local=LOCAL) as events:
        events.open_consumer("mean", ["speed"])
        put(events, range(1, 31))
    with opened(tmp_path, local=LOCAL) as events:
        assert everything(events.open_consumer("mean", ["speed"]), 30) == list(range(1, 31))
    path = tmp_path / LOG_NAME
    # SQLite's own header: the log is set aside and saved row by row.
    path.write_bytes(b"?" * 16 + path.read_bytes()[16:])
    with opened(tmp_path, local=LOCAL) as events:
        assert events.epoch_began == "damaged"
        assert everything(events.open_consumer("mean", ["speed"]), 30) == list(range(1, 31))


def test_a_consumer_that_is_too_far_behind_is_told_what_it_missed(tmp_path: Path) -> None:
    with opened(
        tmp_path, local=LOCAL, config=LogConfig(linger_ms=0, reserve_bytes=0, consumer_bytes=2_000)
    ) as events:
        events.open_consumer("mean", ["speed"])
        for n in range(0, 1000, 10):
            put(events, range(n, n + 10))
        chunk = events.open_consumer("mean", ["speed"]).poll()
        ((first, count, reason),) = missed(chunk)
        assert (first, reason) == (1, LAGGED)
        assert ns(chunk) == list(range(count, 1000))


def test_losses_of_it_take_places_too(tmp_path: Path) -> None:
    sent = Sent()
    with sending(tmp_path, sent, local=LOCAL) as events:
        mean = events.open_consumer("mean", ["speed"])
        put(events, range(1, 3))
        events.stream("speed").lose(5, "queue_full")
        wait_until(lambda: events._writer.store.last("speed") == 7, "counted")
        put(events, range(3, 5))
        chunk = mean.poll()
        while mean.cursor["speed"] < 9:
            chunk = mean.poll()
        assert sent == []
    with opened(tmp_path, local=LOCAL) as events:
        chunk = events.open_consumer("mean", ["speed"]).poll()
        assert (ns(chunk), missed(chunk)) == ([1, 2, 3, 4], [(3, 5, "queue_full")])


def test_what_waited_when_it_was_declared_local_still_goes(tmp_path: Path) -> None:
    sent = Sent()
    with opened(tmp_path) as events:
        put(events, range(1, 11))
    with opened(tmp_path, sent=sent, local=LOCAL) as events:
        put(events, range(11, 16))
        drain(events, sent)
        put(events, range(16, 21))
        assert events.status().backlog_readings == 0
    assert sent.ns() == list(range(1, 16))


def test_when_it_is_sent_again_its_numbers_have_no_hole_and_none_is_used_twice(
    tmp_path: Path,
) -> None:
    numbers: list[tuple[int, int, int]] = []
    for life, (local, boot) in enumerate(
        [(False, "a"), (True, "a"), (False, "a"), (True, "b"), (False, "b"), (False, "c")]
    ):
        sent = Sent()
        with sending(tmp_path, sent, local=LOCAL if local else frozenset(), boot=boot) as events:
            put(events, range(life * 10, life * 10 + 10))
            wait_until(
                lambda sent=sent: sent.acknowledge(events) or not events.status().backlog_readings,
                "drained",
            )
        for frame in sent.until(0):
            assert None not in (frame.epoch, frame.seq, frame.frame)
            numbers += [
                (frame.epoch or 0, frame.frame or 0, (frame.seq or 0) + i)
                for i in range(len(frame.t))
            ]
    epochs = sorted({epoch for epoch, _, _ in numbers})
    assert [[seq for of, _, seq in numbers if of == epoch] for epoch in epochs] == [
        [*range(1, 21)],
        [*range(1, 11)],
        [*range(1, 11)],
    ]
    assert [[frame for of, frame, _ in numbers if of == epoch][::10] for epoch in epochs] == [
        [1, 2],
        [1],
        [1],
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(["sent", "kept here", "epoch"]), st.integers(1, 5)), max_size=30
    )
)
def test_the_numbers_of_what_is_sent_follow_each_other(steps: list[tuple[str, int]]) -> None:
    stream, epoch, found = StreamState(1, "speed"), 1, []
    for step, count in steps:
        if step == "epoch":
            stream, epoch = stream.in_new_epoch(epoch, keep_numbers=True), epoch + 1
        elif step == "kept here":
            stream = stream.kept_here(stream.last + count)
        else:
            span = StreamState(
                stream.id,
                stream.name,
                stream.last + count,
                stream.framed,
                stream.base,
                stream.frame,
            ).next_range(epoch)
            found += [
                (epoch, position - span.base)
                for position in range(stream.framed + 1, span.last + 1)
            ]
            stream = StreamState(
                stream.id, stream.name, span.last, span.last, stream.base, stream.frame + 1
            )
    for epoch in {of for of, _ in found}:
        numbers = [seq for of, seq in found if of == epoch]
        assert numbers == list(range(1, len(numbers) + 1))
