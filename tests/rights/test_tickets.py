"""Tickets: used once, for a short time, so many of each holder."""

from __future__ import annotations

import pytest

from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.tickets import OWN_MAX, TICKET_LIFE_S, Tickets, TooManyTickets
from tests.push.builders import ManualClock
from tests.rights.forge import NOW_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(round(NOW_S * 1000))


def test_tickets(clock: ManualClock) -> None:
    numbers = iter(range(1000))
    tickets = Tickets(clock, lambda: f"t{next(numbers)}")
    assert tickets.issue(ANYBODY, "a") == "t0"
    assert tickets.use_up("t0") is ANYBODY
    assert tickets.use_up("t0") is None
    first = tickets.issue(ANYBODY, "a")
    clock.advance(TICKET_LIFE_S + 0.1)
    assert tickets.use_up(first) is None
    for _ in range(OWN_MAX):
        tickets.issue(ANYBODY, "a")
    with pytest.raises(TooManyTickets):
        tickets.issue(ANYBODY, "a")
    tickets.issue(ANYBODY, "b")
    clock.advance(TICKET_LIFE_S + 0.1)
    tickets.issue(ANYBODY, "a")
    assert tickets.use_up("") is None
