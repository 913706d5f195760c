"""Where a client begins: decided without I/O."""

from __future__ import annotations

import pytest

from edgewake.cloud.log.subscription import (
    Bounds,
    Edge,
    OnGap,
    Plan,
    RequestError,
    Source,
    begin_anew,
    fits,
    padded,
    parse_start,
    plan,
    request,
    resume,
)
from edgewake.protocol.lease import Subscription


def a_plan(*names: str, partitions: int = 2, topic_id: str = "id", where: str | None = None) -> Plan:
    sources = [Source(name, f"ew.s.{name}", False, topic_id, partitions) for name in names]
    return plan(Subscription(streams=names, where=where), sources)


KEPT = [[Bounds(10, 100), Bounds(0, 50)]]


def test_streams_are_sorted_and_each_counts_once() -> None:
    assert request(["b", "a", "b"]).subscription.streams == ("a", "b")


def test_the_first_cursor_that_is_given_counts() -> None:
    assert request(["a"], cursors=(None, "", "v1.x", "v1.y")).cursor == "v1.x"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Edge.EARLIEST),
        ("latest", Edge.LATEST),
        ("1790000000000", 1_790_000_000_000),
        ("2026-11-21T08:00:00Z", 1_795_248_000_000),
        ("2026-11-21T09:00:00.5+01:00", 1_795_248_000_500),
        ("2026-11-21T09:00:00 01:00", 1_795_248_000_000),
    ],
)
def test_a_start_is_an_edge_or_a_time(text: str, start: Edge | int) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["yesterday", "2026-11-21", "2026-11-21T08:00:00", "-5", "99999999999999999", "٣", "nan"])
def test_a_start_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="expected earliest, latest"):
        parse_start(text)


@pytest.mark.parametrize(("words", "code"), [({"on_gap": "x"}, "on_gap"), ({"checkpoint": "x"}, "checkpoint"), ({"start": "x"}, "from")])
def test_a_wrong_word_is_refused_by_its_name(words: dict[str, str], code: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(["a"], **words)
    assert caught.value.code == code


@pytest.mark.parametrize("streams", [[], [f"s{i}" for i in range(17)]])
def test_a_subscription_has_one_to_sixteen_streams(streams: list[str]) -> None:
    with pytest.raises(RequestError, match="1 to 16"):
        request(streams)


def test_a_cursor_fits_its_own_streams_and_filters_only() -> None:
    mine = a_plan("a", where="x > 1")
    cursor = mine.cursor((((1, 0), (2, 0)),))
    assert fits(cursor, mine) is None
    assert fits(cursor, a_plan("a")) == "subscription"
    assert fits(cursor, a_plan("b", where="x > 1")) == "subscription"
    assert fits(cursor, a_plan("a", where="x > 1", topic_id="another")) == "epoch"


def test_partitions_that_were_added_begin_at_their_first_record() -> None:
    cursor = a_plan("a").cursor((((1, 0), (2, 0)),))
    assert fits(cursor, a_plan("a", partitions=3)) is None
    assert padded(cursor, a_plan("a", partitions=3)) == (((1, 0), (2, 0), (0, 0)),)
    assert fits(cursor, a_plan("a", partitions=1)) == "epoch"


def test_a_cursor_within_what_is_kept_goes_on_exactly() -> None:
    start = resume((((10, 0), (50, 0)),), a_plan("a"), KEPT, OnGap.EARLIEST)
    assert (start.positions, start.how, start.gaps) == ((((10, 0), (50, 0)),), "resumed", ())


def test_a_cursor_that_retention_passed_is_told_what_is_lost() -> None:
    start = resume((((4, 2), (7, 1)),), a_plan("a"), KEPT, OnGap.EARLIEST)
    assert start.positions == (((10, 0), (7, 1)),)
    assert start.gaps[0].fields == {
        "scope": "cursor",
        "reason": "retention",
        "stream": "a",
        "partition": 0,
        "from": 4,
        "earliest": 10,
        "lost": 6,
        "continues": "earliest",
    }


def test_a_cursor_past_the_end_is_a_gap_too() -> None:
    start = resume((((101, 0), (7, 0)),), a_plan("a"), KEPT, OnGap.LATEST)
    assert (start.gaps[0].fields["reason"], start.positions) == ("truncated", (((100, 0), (7, 0)),))


@pytest.mark.parametrize(
    ("on_gap", "positions", "ends"),
    [
        (OnGap.EARLIEST, (((10, 0), (0, 0)),), False),
        (OnGap.LATEST, (((100, 0), (50, 0)),), False),
        (OnGap.STOP, (((10, 0), (0, 0)),), True),
    ],
)
def test_after_a_gap_the_declared_policy_decides(on_gap: OnGap, positions: object, ends: bool) -> None:
    start = begin_anew("epoch", a_plan("a"), KEPT, on_gap)
    assert (start.positions, start.ends, start.gaps[0].fields["continues"]) == (positions, ends, on_gap)
