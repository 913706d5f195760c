"""How long to wait; and what a server means by Retry-After, wherever the machine stands."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.backoff import SETTLED_S, Backoff, retry_after_s

NOW_MS = 784_111_777_000
"""Sun, 06 Nov 1994 08:49:37 GMT."""


def test_waits_double_up_to_the_bound_and_at_least_half_of_each_is_waited() -> None:
    backoff = Backoff(random.Random(1), first_s=0.2, max_s=30)
    for bound in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        assert bound / 2 <= backoff.next_s() <= bound


def test_waits_begin_again_after_a_success() -> None:
    backoff = Backoff(random.Random(1), first_s=1, max_s=5)
    for bound_s in (1, 2, 4, 5, 5):
        assert bound_s / 4 <= backoff.next_s() <= bound_s
    backoff.reset()
    assert backoff.next_s() <= 1


def test_a_thousand_devices_spread_over_half_the_wait() -> None:
    waits = sorted(
        Backoff(random.Random(seed), first_s=10, max_s=10).next_s() for seed in range(1000)
    )
    assert waits[0] < 5.1
    assert waits[-1] > 9.9


def test_no_two_clients_wait_alike() -> None:
    assert len({Backoff(random.Random(seed)).next_s() for seed in range(100)}) == 100


def test_only_a_connection_that_lasted_is_forgiven() -> None:
    backoff = Backoff(random.Random(1), first_s=0.2, max_s=30)
    for _ in range(10):
        backoff.next_s()
        backoff.lasted(SETTLED_S - 1)
    assert backoff.next_s() >= 15
    backoff.lasted(SETTLED_S)
    assert backoff.next_s() <= 0.2


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/Caracas"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device's zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("0", 0.0, id="at once"),
        pytest.param("120", 120.0, id="two minutes"),
        pytest.param("999999", 3600.0, id="longer than the bound"),
        pytest.param("9" * 400, 3600.0, id="longer than a float"),
        pytest.param("Sun, 06 Nov 1994 08:50:37 GMT", 60.0, id="a date"),
        pytest.param("Sunday, 06-Nov-94 08:50:37 GMT", 60.0, id="a date as of RFC 850"),
        pytest.param(
            "Sun Nov  6 08:50:37 1994", 60.0, id="a date as of asctime, which names no zone"
        ),
        pytest.param(
            "Sun, 06 Nov 1994 08:50:37 -0000", 60.0, id="a date of a zone that is not known"
        ),
        pytest.param("Sun, 06 Nov 1994 09:50:37 +0100", 60.0, id="a date of another zone"),
        pytest.param("Sun, 06 Nov 1994 08:49:36 GMT", 0.0, id="a moment ago"),
        pytest.param("Sun, 06 Nov 2094 08:49:37 GMT", 3600.0, id="in a hundred years"),
        pytest.param("", 0.0, id="nothing"),
        pytest.param("-5", 0.0, id="below nought"),
        pytest.param("1.5", 0.0, id="a fraction"),
        pytest.param("1e3", 0.0, id="a number of another kind"),
        pytest.param("\u0665", 0.0, id="a digit of another script"),
        pytest.param("soon", 0.0, id="a word"),
        pytest.param("Sun, 99 Nov 1994 08:49:37 GMT", 0.0, id="a day that there is not"),
        pytest.param("Sun, 06 Nov 99999 08:49:37 GMT", 0.0, id="a year that there is not"),
    ],
)
@pytest.mark.usefixtures("zone")
def test_it_is_understood_or_nothing(text: str, seconds: float) -> None:
    assert retry_after_s(text, NOW_MS, max_s=3600) == seconds


@given(st.text(max_size=40), st.integers(-(10**15), 10**15))
def test_whatever_it_is_the_wait_is_within_its_bounds(text: str, now_ms: int) -> None:
    assert 0 <= retry_after_s(text, now_ms, max_s=60) <= 60
