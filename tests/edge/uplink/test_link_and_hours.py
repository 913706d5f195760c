"""A link that changes, hours at their edges, brokers that come and go, a window that is nearly
full: what follows, at the bound.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.liveness import Outgoing
from edgewake.edge.log.keeping.lanes import PART, SHARE, Lane, Window
from edgewake.edge.mqtt_link import TooLarge
from edgewake.edge.uplink.goodput import (
    FRAME_BYTES_FIRST,
    FRAME_BYTES_MIN,
    GROWTH,
    KEEPALIVE_MAX_S,
    SAMPLE_S,
    Goodput,
)
from edgewake.edge.uplink.one_way import OneWay
from edgewake.edge.uplink.puback import REASONS, REJECT_REASONS, Puback, meaning, name
from edgewake.edge.uplink.schedule import (
    BURST_S,
    DAY_MS,
    MINUTE_MS,
    Brokers,
    Cap,
    Hours,
    closed_lanes,
)
from edgewake.protocol.backoff import SETTLED_S

MOST = 256 << 10


def measured(*samples: tuple[float, int, int], goodput: Goodput | None = None) -> Goodput:
    """(time, confirmed, waiting)."""
    goodput = goodput or Goodput()
    for now_s, confirmed, waiting in samples:
        goodput.sample(now_s, Outgoing(confirmed, waiting))
    return goodput


# the link


def test_a_new_connection_may_be_a_slower_network_and_begins_modestly() -> None:
    """From a depot's WLAN to the road: a frame of 256 KiB would hold up everything for half a
    minute.
    """
    goodput = measured((0, 0, 0), (1, 1_000_000, 0))
    assert goodput.frame_bytes(MOST) == MOST
    goodput.connected()
    assert goodput.frame_bytes(MOST) == FRAME_BYTES_FIRST
    measured((10, 0, 0), (11, 1_000_000, 0), goodput=goodput)
    assert goodput.frame_bytes(MOST) == MOST


def test_that_a_link_is_slow_is_remembered_over_connections() -> None:
    goodput = measured((0, 0, 9), (1, 8_000, 9))
    goodput.connected()
    assert goodput.frame_bytes(MOST) == 16_000


@pytest.mark.parametrize(
    ("samples", "bytes_per_s"),
    [
        (((0, 0, 9), (1, 8_000, 9)), 8_000),
        (((0, 0, 9), (2, 8_000, 9)), 4_000),
        (((0, 0, 9), (SAMPLE_S, 4_000, 9)), 8_000),
        (((0, 0, 9), (SAMPLE_S - 0.01, 4_000, 9)), None),
        (((0, 0, 9), (1, 8_000, 0)), None),
        (((0, 0, 0), (1, 8_000, 9)), None),
        (((0, 0, 9), (1, 0, 9)), None),
        (((0, 0, 9), (1, 8_000, 9), (2, 12_000, 9)), 6_000),
        (((0, 0, 9), (1, 8_000, 9), (2, 8_000, 9)), 8_000),
        (((0, 0, 9), (1, 8_000, 9), (2, 9_000, 0)), 8_000 * GROWTH),
        (((0, 0, 9), (1, 8_000, 9), (2, 58_000, 0)), 50_000),
        (((0, 0, 9), (1, 8_000, 9), (2, 8_000, 0)), 8_000),
        (((0, 0, 9), (1, 8_000, 9), (2, 9_000, 0), (3, 10_000, 9)), 8_000 * GROWTH),
    ],
    ids=[
        "a second", "two seconds", "just long enough", "not long enough",
        "nothing waited at the end", "nothing waited at the beginning",
        "nothing moved", "the mean of two", "a stall is no speed", "it may have become faster",
        "it is faster", "nothing was sent",
        "what began to wait tells nothing",
    ],
)  # fmt: skip
def test_the_speed_is_measured_while_bytes_wait(
    samples: Iterable[tuple[float, int, int]], bytes_per_s: float | None
) -> None:
    assert measured(*samples).bytes_per_s == bytes_per_s


@pytest.mark.parametrize(
    ("cap", "size"),
    [
        (None, FRAME_BYTES_FIRST),
        (100, FRAME_BYTES_MIN),
        (1024, FRAME_BYTES_MIN),
        (1025, 2050),
        (10**9, FRAME_BYTES_FIRST),
    ],
)
def test_a_cap_bounds_a_frame_to_two_seconds_of_it(cap: float | None, size: int) -> None:
    assert Goodput().frame_bytes(MOST, cap_bytes_per_s=cap) == size


@given(
    st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 10**7), st.integers(0, 1)), max_size=30),
    st.integers(1, MOST),
    st.integers(1, 10**7),
)
def test_whatever_is_measured_a_frame_and_a_keepalive_are_sane(
    steps: list[tuple[float, int, int]], most: int, largest: int
) -> None:
    goodput, now_s, confirmed = Goodput(), 0.0, 0
    for seconds, grown, waiting in steps:
        now_s, confirmed = now_s + seconds, confirmed + grown
        goodput.sample(now_s, Outgoing(confirmed, waiting))
    assert min(most, FRAME_BYTES_MIN) <= goodput.frame_bytes(most) <= most
    assert 10 <= goodput.keepalive_s(10, largest) <= KEEPALIVE_MAX_S
    assert goodput.keepalive_s(300, largest) == 300, "what was configured is never shortened"


# hours and the cap


@pytest.mark.parametrize(
    ("text", "minute", "holds"),
    [
        ("22:00-06:00", 22 * 60, True), ("22:00-06:00", 22 * 60 - 1, False),
        ("22:00-06:00", 0, True), ("22:00-06:00", 6 * 60 - 1, True),
        ("22:00-06:00", 6 * 60, False), ("06:00-22:00", 6 * 60, True),
        ("06:00-22:00", 22 * 60 - 1, True), ("06:00-22:00", 22 * 60, False),
        ("00:00-23:59", 23 * 60 + 58, True), ("00:00-23:59", 23 * 60 + 59, False),
        ("23:59-00:00", 23 * 60 + 59, True),
        ("23:59-00:00", 0, False), ("00:01-00:00", 0, False), ("00:01-00:00", 1, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("day", [0, 20_000])
def test_hours_hold_from_their_first_minute_to_before_their_last(
    text: str, minute: int, holds: bool, day: int
) -> None:
    begins = day * DAY_MS + minute * MINUTE_MS
    assert (Hours.parse(text).holds(begins), Hours.parse(text).holds(begins + MINUTE_MS - 1)) == (
        holds,
        holds,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "22:00",
        "22:00-",
        "24:00-06:00",
        "22:60-06:00",
        "9:00-10:00",
        "22:00-22:00",
        "22:00 - 06:00",
        "٢٢:00-06:00",
        "22:00-06:00\n",
    ],
)
def test_what_are_no_hours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected hours|begins when it ends"):
        Hours.parse(text)


def test_a_lane_is_closed_outside_all_of_its_hours() -> None:
    hours = {
        Lane.BULK: [Hours.parse("01:00-02:00"), Hours.parse("03:00-04:00")],
        Lane.NORMAL: [],
        Lane.URGENT: [Hours.parse("00:00-03:00")],
    }
    closed = [closed_lanes(hours, hour * 60 * MINUTE_MS) for hour in range(5)]
    assert closed == [{Lane.BULK}, set(), {Lane.BULK}, {Lane.URGENT}, {Lane.BULK, Lane.URGENT}]


def test_a_pause_earns_one_burst_and_no_more() -> None:
    cap = Cap(1000)
    assert cap.due_s(50) is None
    cap.spent(int(1000 * BURST_S), 50)
    assert cap.due_s(50) is None, "just the burst"
    cap.spent(500, 50)
    assert cap.due_s(50) == 50.5
    assert cap.due_s(50.5) is None
    cap.spent(int(1000 * BURST_S) + 1, 10_000)
    assert cap.due_s(10_000) == pytest.approx(10_000.001)


# brokers


def brokers(count: int = 2) -> Brokers:
    return Brokers(count, minimum_s=1, maximum_s=60, home_after_s=300, rng=random.Random(1))


def test_home_is_looked_for_only_while_we_are_elsewhere_and_only_now_and_then() -> None:
    found = brokers()
    assert not found.home_is_due(10**9)
    found.connected(0, 0)
    assert not found.home_is_due(10**9)
    found.connected(1, 0)
    assert (found.home_is_due(299.9), found.home_is_due(300)) == (False, True)
    found.looked_for_home(300, answers=False)
    assert (found.home_is_due(599.9), found.home_is_due(600)) == (False, True)
    found.ended(1, 650, lasted_s=650)
    assert not found.home_is_due(10**9)


def test_a_home_that_answers_is_the_next_to_be_tried_whatever_it_did_before() -> None:
    found = brokers()
    for _ in range(8):
        found.ended(0, 0)
    assert found.choose(0)[0] == 1
    found.connected(1, 0)
    found.looked_for_home(300, answers=True)
    found.ended(1, 300, lasted_s=300)
    assert found.choose(300) == (0, 0.0)


@pytest.mark.parametrize(("lasted_s", "forgotten"), [(SETTLED_S, True), (SETTLED_S - 0.1, False)])
def test_a_connection_that_lasted_makes_its_failures_forgotten(
    lasted_s: float, forgotten: bool
) -> None:
    found = brokers(1)
    for _ in range(6):
        found.ended(0, 0)
    found.ended(0, 1000, lasted_s=lasted_s)
    assert (found.choose(1000)[1] <= 1) == forgotten


def test_the_address_that_failed_least_is_tried_first() -> None:
    found = brokers(3)
    for index, failures in ((0, 5), (1, 2), (2, 3)):
        for _ in range(failures):
            found.ended(index, 0)
    assert found.choose(1000)[0] == 1


# the window


@pytest.mark.parametrize("lane", list(Lane))
def test_a_lane_fills_its_part_and_no_more(lane: Lane) -> None:
    window = Window(100, 10**9, lane=lambda _: lane)
    count = 0
    while window.admits("a") and count < 200:
        window.add("a", 1)
        count += 1
    free = 100 * PART[lane] - count
    assert count > 0
    assert count - 1 <= SHARE * (free + 1), "the last one was within its share"
    assert count > SHARE * free, "and the next one would not be"


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5000)), max_size=80),
    st.integers(1, 40),
    st.integers(1, 50_000),
)
def test_a_window_that_is_refilled_is_the_one_that_was_filled(
    added: list[tuple[str, int]], frames: int, size: int
) -> None:
    lanes = {"a": Lane.URGENT, "b": Lane.BULK}

    def lane(stream: str) -> Lane:
        return lanes.get(stream, Lane.NORMAL)

    one = Window(frames, size, lane=lane)
    for stream, used in added:
        one.add(stream, used)
    other = Window(frames, size, added, lane=lane)
    assert [one.admits(stream) for stream in "abcdefg"] == [
        other.admits(stream) for stream in "abcdefg"
    ]
    assert other.admits("g"), "who has nothing in flight always has one"


# one way


def test_a_queue_is_sent_in_order_as_far_as_there_is_room_and_goes_on_there() -> None:
    queue, sent = OneWay(10, 10_000), list[bytes]()
    queue.add("s", [(n, {"n": n}) for n in range(5)])
    room = iter([True, True, False])
    queue.send(lambda: next(room), lambda _stream, payload: sent.append(payload))
    assert (len(sent), len(queue), queue.sent) == (2, 3, 2)
    queue.send(lambda: True, lambda _stream, payload: sent.append(payload))
    assert sent == [b'{"t":%d,"n":%d}' % (n, n) for n in range(5)]
    assert (queue.sent, queue.dropped, len(queue)) == (5, 0, 0)


def test_what_the_broker_takes_not_is_dropped_and_counted_and_the_next_one_goes() -> None:
    queue, sent = OneWay(10, 10_000), list[str]()

    def publish(stream: str, _payload: bytes) -> None:
        if stream == "large":
            raise TooLarge("too large")
        sent.append(stream)

    for stream in ("a", "large", "b"):
        queue.add(stream, [(1, {"n": 1})])
    queue.send(lambda: True, publish)
    assert (sent, queue.sent, queue.dropped, len(queue)) == (["a", "b"], 2, 1, 0)


@pytest.mark.parametrize(("readings_max", "left"), [(3, 3), (2, 2), (1, 1)])
def test_of_too_many_the_latest_stay(readings_max: int, left: int) -> None:
    queue, sent = OneWay(readings_max, 10_000), list[bytes]()
    queue.add("s", [(n, {}) for n in range(3)])
    assert (len(queue), queue.dropped) == (left, 3 - left)
    queue.send(lambda: True, lambda _stream, payload: sent.append(payload))
    assert sent == [b'{"t":%d}' % n for n in range(3 - left, 3)]


# the broker's answers


def test_every_answer_of_a_broker_means_something_and_success_is_never_taken_for_an_error() -> None:
    for reason in range(256):
        assert (meaning(reason) is Puback.RECEIVED) == (reason < 0x80)
        assert (meaning(reason) is Puback.NEVER) == (reason in REJECT_REASONS)
        assert name(reason).startswith(f"0x{reason:02x}")
        assert (reason in REASONS) == (" " in name(reason))
