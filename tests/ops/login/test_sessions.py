"""Tickets and sessions: bounded, used once, each holder's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgewake.cloud.ops.login.keys import parse
from edgewake.cloud.ops.login.sessions import (
    OUTSTANDING_MAX,
    OWN_MAX,
    TICKET_LIFE_S,
    Passes,
)
from edgewake.protocol.clock import FakeClock

KEY, READ_KEY = "k" * 32, "r" * 32


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx's ASGI transport names no port."""
    monkeypatch.setattr("edgewake.cloud.ops.login.auth.cookie_name", lambda _: "edgewake_ops_80")


def test_a_ticket_is_used_once_within_its_time() -> None:
    clock, numbers = FakeClock(), iter(range(1000))
    tickets = Passes(clock, lambda: f"t{next(numbers)}", TICKET_LIFE_S)
    (holder,) = parse(KEY)
    first, second = tickets.issue(holder), tickets.issue(holder)
    clock.advance(TICKET_LIFE_S)
    assert [tickets.use_up(first), tickets.use_up(first)] == [holder, None]
    clock.advance(0.001)
    assert tickets.use_up(second) is None


def test_outstanding_tickets_are_bounded_and_the_oldest_goes_first() -> None:
    numbers = iter(range(1000))
    tickets = Passes(FakeClock(), lambda: f"t{next(numbers)}", TICKET_LIFE_S)
    (holder,) = parse(KEY)
    holders = [replace(holder, name=f"h{n}") for n in range(OUTSTANDING_MAX + 1)]
    issued = [tickets.issue(one) for one in holders]
    assert [tickets.find(issued[0]), tickets.find(issued[1])] == [None, holders[1]]


def test_one_holder_s_sessions_end_nobody_else_s() -> None:
    numbers = iter(range(1000))
    sessions = Passes(FakeClock(), lambda: f"s{next(numbers)}", TICKET_LIFE_S)
    (holder,) = parse(KEY)
    victim = replace(holder, name="victim")
    kept = sessions.issue(victim)
    many = [sessions.issue(holder) for _ in range(2 * OUTSTANDING_MAX)]
    assert sessions.find(kept) == victim
    assert [one for one in many if sessions.find(one)] == many[-OWN_MAX:]
