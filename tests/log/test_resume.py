"""Going on from a cursor: exactly where that can be, else a gap for what is lost and for nothing
beside it. Decided without I/O.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgewake.cloud.log.request import OnGap
from edgewake.cloud.log.resume import resume, resume_unverified
from edgewake.cloud.log.subscription import Bounds, Plan, Positions, Source, Start, plan
from edgewake.protocol.cursor import Cursor
from edgewake.protocol.leases.lease import Subscription

KEPT = [Bounds(10, 100), Bounds(0, 50)]
LIVE = ((100, 0), (50, 0))
WEEK = 1_000_000


def source(name: str, partitions: int = 2, topic_id: str = "") -> Source:
    return Source(name, f"ew.s.{name}", False, topic_id or f"{name}-1", partitions)


def a_plan(*sources: Source, where: str | None = None) -> Plan:
    return plan(Subscription(streams=tuple(s.name for s in sources), where=where), sources)


def resumed(
    cursor: Cursor,
    to: Plan,
    on_gap: OnGap = OnGap.EARLIEST,
    *,
    kept: list[list[Bounds]] | None = None,
) -> Start:
    bounds = kept or [KEPT[: s.partitions] for s in to.sources]
    new: Positions = tuple(LIVE[: s.partitions] for s in to.sources)
    return resume(cursor, to, bounds, on_gap, new=new)


def reasons(start: Start) -> list[tuple[str, str | None, str]]:
    return [
        (gap.event.fields["reason"], gap.event.fields.get("stream"), gap.event.fields["continues"])
        for gap in start.gaps
    ]


A = a_plan(source("a"))
AB = a_plan(source("a"), source("b"))


def test_a_cursor_within_what_is_kept_goes_on_exactly() -> None:
    positions = (((10, 0), (50, 0)),)
    assert resumed(A.cursor(positions), A) == Start(positions, "resumed")


def test_retention_is_a_gap_with_the_count_and_other_partitions_go_on() -> None:
    start = resumed(A.cursor((((4, 2), (7, 1)),)), A)
    assert start.positions == (((10, 0), (7, 1)),)
    assert start.gaps[0].event.fields == {
        "scope": "cursor",
        "reason": "retention",
        "stream": "a",
        "partition": 0,
        "from": 4,
        "earliest": 10,
        "lost": 6,
        "continues": "earliest",
    }


@pytest.mark.parametrize("on_gap", [OnGap.EARLIEST, OnGap.LATEST])
def test_a_cursor_past_the_end_goes_on_at_the_end(on_gap: OnGap) -> None:
    """The log lost its latest record, perhaps one: nothing is a reason to repeat the week
    before.
    """
    start = resumed(A.cursor((((101, 0), (7, 0)),)), A, on_gap)
    assert (start.positions, reasons(start)) == (
        (((100, 0), (7, 0)),),
        [("truncated", "a", "latest")],
    )


def test_one_topic_made_anew_resets_its_own_stream_only() -> None:
    cursor = AB.cursor((((90, 0), (40, 0)), ((90, 0), (40, 0))))
    start = resumed(cursor, a_plan(source("a"), source("b", topic_id="b-2")))
    assert start.positions == (((90, 0), (40, 0)), ((10, 0), (0, 0)))
    assert reasons(start) == [("epoch", "b", "earliest")]


def test_a_topic_with_fewer_partitions_was_made_anew() -> None:
    start = resumed(
        A.cursor((((90, 0), (40, 0)),)), a_plan(source("a", partitions=1)), OnGap.LATEST
    )
    assert (start.positions, reasons(start)) == ((((100, 0),),), [("epoch", "a", "latest")])


def test_partitions_that_were_added_begin_at_their_first_record() -> None:
    kept = [[*KEPT, Bounds(0, 5), Bounds(3, 5)]]
    start = resume(
        A.cursor((((90, 0), (40, 0)),)),
        a_plan(source("a", 4)),
        kept,
        OnGap.EARLIEST,
        new=(((0, 0),) * 4,),
    )
    assert start.positions == (((90, 0), (40, 0), (0, 0), (3, 0)),)
    assert reasons(start) == [("retention", "a", "earliest")]


def test_a_changed_filter_goes_on_at_the_same_position() -> None:
    positions = (((90, 0), (40, 3)),)
    start = resumed(A.cursor(positions), a_plan(source("a"), where="x > 1"))
    assert (start.positions, reasons(start), start.gaps[0].event.fields["lost"]) == (
        positions,
        [("filter_changed", None, "here")],
        0,
    )


def test_a_stream_that_is_added_begins_where_a_new_client_would_and_the_others_go_on() -> None:
    start = resumed(A.cursor((((90, 0), (40, 0)),)), AB)
    assert (start.positions, reasons(start)) == (
        (((90, 0), (40, 0)), LIVE),
        [("stream_added", "b", "latest")],
    )


def test_a_stream_that_is_removed_is_dropped_without_a_word() -> None:
    assert resumed(AB.cursor((((90, 0), (40, 0)), LIVE)), A) == Start(
        (((90, 0), (40, 0)),), "resumed"
    )


def test_of_several_gaps_each_has_the_cursor_that_is_told_the_later_ones_again() -> None:
    """Cut between any two and resumed with the last id that came: together all of them are told,
    each once.
    """
    before = AB.cursor((((1, 0), (40, 0)), ((2, 0), (60, 0))))
    after = a_plan(source("a"), source("b"), source("c"), where="x > 1")
    whole = resumed(before, after)
    assert [reason for reason, *_ in reasons(whole)] == [
        "filter_changed",
        "retention",
        "retention",
        "truncated",
        "stream_added",
    ]
    for count in range(1, len(whole.gaps) + 1):
        rest = resumed(whole.gaps[count - 1].cursor, after)
        assert reasons(rest) == reasons(whole)[count:]
        assert rest.positions == whole.positions


def test_a_client_that_asked_to_stop_is_stopped_where_it_was() -> None:
    """The gap's cursor moves nothing, so who goes on with another policy is told the same gaps and
    loses nothing beside.
    """
    before = A.cursor((((1, 0), (60, 0)),))
    start = resumed(before, A, OnGap.STOP)
    assert start.ends
    assert {gap.cursor for gap in start.gaps} == {replace(before, stop=True)}
    assert [reason for reason, *_ in reasons(resumed(start.gaps[0].cursor, A, OnGap.LATEST))] == [
        "retention",
        "truncated",
    ]


def test_what_the_client_itself_changed_stops_nobody() -> None:
    start = resumed(
        A.cursor((((90, 0), (40, 0)),)), a_plan(source("a"), source("b"), where="x > 1"), OnGap.STOP
    )
    assert (start.ends, len(start.gaps)) == (False, 2)


@pytest.mark.parametrize(
    ("on_gap", "positions", "ends"),
    [
        (OnGap.EARLIEST, ((10, 0), (0, 0)), False),
        (OnGap.LATEST, LIVE, False),
        (OnGap.STOP, ((10, 0), (0, 0)), True),
    ],
)
def test_a_cursor_that_cannot_be_verified_is_a_gap_and_the_policy_decides(
    on_gap: OnGap, positions: object, ends: bool
) -> None:
    start = resume_unverified(A, [KEPT], on_gap)
    assert (start.positions, start.ends, reasons(start)) == (
        (positions,),
        ends,
        [("unverifiable", None, on_gap)],
    )
    assert start.gaps[0].cursor.stop is ends
