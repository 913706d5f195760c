"""Every pair of state and event: what follows, or a refusal that changes nothing."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.leases import lease_state
from edgewake.cloud.push.leases.lease_state import (
    PAUSE_S,
    TRANSITIONS,
    IllegalTransition,
    LeaseEvent,
    after,
    next_action_at,
)
from edgewake.cloud.push.leases.wake_policy import GIVE_UP_AFTER_S, Unseen
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease_record import (
    PARTITIONS,
    Lease,
    LeaseState,
    PendingWake,
    partition_of,
)
from tests.push.builders import NOW, lease

ODD_STATE = lease_record.encode(lease("1")).replace(b"waiting", b"dancing")
RNG = random.Random(1)
PENDING = PendingWake(number=1, body="{}", made_at=NOW)
S = LeaseState


def in_state(state: LeaseState, **more: object) -> Lease:
    return lease("1", state=state, pending=PENDING if state in (S.CALLING,) else None, **more)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(LeaseState, LeaseEvent)))
def test_each_pair_has_a_next_state_or_is_refused(state: LeaseState, event: LeaseEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"{event} in state {state}"):
            after(state, event)


def test_what_has_ended_stays_ended() -> None:
    assert not [event for state, event in TRANSITIONS if state is S.ENDED]


def test_every_living_lease_can_end_be_taken_over_and_be_read() -> None:
    for state in set(S) - {S.ENDED}:
        assert {LeaseEvent.OVER, LeaseEvent.TAKEN_OVER, LeaseEvent.READS, LeaseEvent.MOVED} <= {
            e for s, e in TRANSITIONS if s is state
        }


def test_every_state_is_reached_from_the_first() -> None:
    reached = {S.WAITING}
    for _ in S:
        reached |= {to for (state, _), to in TRANSITIONS.items() if state in reached}
    assert reached == set(S)


def test_a_wake_up_that_was_taken_is_followed_by_longer_and_longer_waits() -> None:
    found, waits = in_state(S.DUE), []
    for _ in range(4):
        calling = lease_state.stored(
            found, PendingWake(found.wakes + 1, "{}", NOW), counted_to="c5", count=5, gap=False
        )
        notified = lease_state.accepted(calling, now=NOW, rng=RNG)
        waits.append((notified.due_at - NOW) / 1000)
        found = lease_state.due(notified)
    assert (found.wakes, found.unanswered) == (4, 4)
    assert [
        round(wait / base, 1) for wait, base in zip(waits, (60, 600, 3600, 21_600), strict=True)
    ] == pytest.approx([1.05] * 4, abs=0.06)


def test_no_event_wakes_a_client_again_that_was_notified() -> None:
    notified = in_state(S.NOTIFIED, due_at=NOW + 60_000)
    assert next_action_at(notified, Unseen(1000, NOW), now=NOW) == NOW + 60_000


def test_a_failed_try_keeps_the_wake_up_and_its_bytes() -> None:
    failed = lease_state.failed(
        in_state(S.CALLING), why="503", retry_after_s=None, now=NOW, rng=RNG
    )
    again = lease_state.tried_again(failed)
    assert (failed.state, failed.pending, failed.failures, failed.failing_since) == (
        S.DUE,
        PENDING,
        1,
        NOW,
    )
    assert (again.state, again.pending) == (S.CALLING, PENDING)


def test_an_endpoint_that_failed_for_days_is_given_up_and_can_be_called_again() -> None:
    since = NOW - GIVE_UP_AFTER_S * 1000
    given_up = lease_state.failed(
        in_state(S.CALLING, failures=9, failing_since=since),
        why="503",
        retry_after_s=None,
        now=NOW,
        rng=RNG,
    )
    assert given_up.state is S.DISABLED
    assert given_up.disabled == "given up after 10 tries in 3.0 days; the last: 503"
    assert next_action_at(given_up, Unseen(5, NOW), now=NOW) == given_up.expires_at
    enabled = lease_state.enabled(given_up)
    assert (enabled.state, enabled.disabled, enabled.failures, enabled.failing_since) == (
        S.WAITING,
        None,
        0,
        None,
    )


def test_a_client_that_reads_is_not_woken_until_it_has_left_without_a_word() -> None:
    notified = in_state(S.NOTIFIED, due_at=NOW, unanswered=3, counted_to="c9", count=9, wakes=3)
    paused = lease_state.reads(notified, cursor="c20", now=NOW)
    assert (paused.state, paused.cursor, paused.counted_to, paused.count, paused.unanswered) == (
        S.PAUSED,
        "c20",
        None,
        0,
        0,
    )
    assert next_action_at(paused, Unseen(), now=NOW) == NOW + PAUSE_S * 1000
    again = lease_state.reads(paused, cursor=None, now=NOW + 60_000)
    assert (again.cursor, again.due_at) == ("c20", NOW + 60_000 + PAUSE_S * 1000)
    left = lease_state.left(again)
    assert (left.state, left.cursor, left.wakes) == (S.WAITING, "c20", 3)


def test_the_number_of_a_wake_up_that_was_not_sent_is_not_used_for_another() -> None:
    """A receiver drops repeats by id: the same id with another body would be lost."""
    moved = lease_state.moved(in_state(S.CALLING), "c30")
    assert (moved.state, moved.pending, moved.wakes) == (S.WAITING, None, 1)


def test_a_disabled_lease_stays_so_while_its_client_reads() -> None:
    disabled = in_state(S.DISABLED, disabled="410")
    assert lease_state.reads(disabled, cursor="c5", now=NOW) == disabled
    assert lease_state.moved(disabled, "c5").state is S.DISABLED


def test_a_call_that_may_or_may_not_have_been_made_is_made_again_with_the_same_bytes() -> None:
    taken = lease_state.taken_over(in_state(S.CALLING), now=NOW)
    assert (taken.state, taken.pending) == (S.DUE, PENDING)
    assert next_action_at(taken, Unseen(), now=NOW) == NOW


def test_a_pause_outlives_the_death_of_a_proxy() -> None:
    paused = in_state(S.PAUSED, due_at=NOW - 1)
    assert lease_state.taken_over(paused, now=NOW).due_at == NOW + PAUSE_S * 1000


def test_no_lease_is_looked_at_after_its_end() -> None:
    for state in set(S) - {S.ENDED}:
        over = in_state(state, expires_at=NOW - 1, due_at=NOW + 1000)
        assert next_action_at(over, Unseen(1, NOW), now=NOW) <= NOW


@given(
    st.sampled_from(sorted(S)),
    st.integers(0, 2**50),
    st.one_of(st.none(), st.integers(0, 2**50)),
    st.booleans(),
)
def test_a_record_is_read_as_it_was_written(
    state: LeaseState, count: int, due_at: int | None, has_pending: bool
) -> None:
    stored = lease(
        "1",
        state=state,
        count=count,
        due_at=due_at,
        pending=PENDING if has_pending else None,
        where="n > 1",
    )
    assert lease_record.decode(lease_record.encode(stored)) == stored


@pytest.mark.parametrize("record", [b"", b"[]", b"null", b"{}", b'{"id":1}', b"\xff", ODD_STATE])
def test_a_record_that_is_no_lease_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of several kinds)
        lease_record.decode(record)


def test_policies_and_streams_that_are_the_same_are_shared() -> None:
    one, two = (
        lease_record.decode(lease_record.encode(lease(lease_id, wake={"min_events": 7})))
        for lease_id in "12"
    )
    assert one.wake is two.wake
    assert one.streams is two.streams


def test_leases_are_spread_evenly_over_the_partitions() -> None:
    counts = [0] * PARTITIONS
    for number in range(8000):
        counts[partition_of(f"{number:024x}")] += 1
    assert max(counts) < 1.2 * 8000 / PARTITIONS
