"""What becomes of a delivery, decided without I/O."""

from __future__ import annotations

import random

import pytest

from edgewake.cloud.calls.webhook import Failed, is_gone, signed_headers
from edgewake.cloud.push.deliveries import delivery_state as state
from edgewake.protocol.leases.delivery_record import (
    Delivery,
    DeliveryState,
    Letter,
    decode_delivery,
    decode_letter,
    encode,
)
from edgewake.protocol.leases.endpoint_kind import EndpointKind

NOW = 1_790_000_000_000
DAY_MS = 86_400_000


def delivery(**more: object) -> Delivery:
    values = {
        "id": "ab",
        "owner": "cd",
        "name": "orders",
        "streams": ("s",),
        "cursor": "c0",
        "endpoint_host": "example.org",
        "sealed": "x",
        "created_at": NOW,
        "changed_at": NOW,
    }
    return Delivery(**values | more)  # type: ignore[arg-type]


def failing(found: Delivery, outcome: Failed, now: int) -> Delivery:
    return state.failed(found, outcome, now=now, rng=random.Random(1))


def test_a_batch_that_fails_keeps_its_number_and_place_for_days_and_then_it_ends() -> None:
    found = state.begun(delivery(), "c1", now=NOW)
    now, waits = NOW, []
    while found.state is DeliveryState.ACTIVE:
        found = failing(found, Failed("503", None, 503), now)
        assert found.pending is not None
        assert (found.pending.number, found.pending.to, found.cursor) == (1, "c1", "c0")
        if found.next_at is not None:
            waits.append((found.next_at - now) / 1000)
            now = found.next_at
    assert now - NOW >= state.GIVE_UP_S * 1000
    assert len(waits) > 100
    for wait, least in zip(waits, state.RETRY_DELAYS_S, strict=False):
        assert least <= wait <= least * (1 + state.JITTER)
    assert waits[-1] <= state.RETRY_DELAYS_S[-1] * (1 + state.JITTER)
    assert "given up after" in (found.why or "")
    again = state.enabled(found, now=now)
    assert (again.state, again.failures, again.cursor) == (DeliveryState.ACTIVE, 0, "c0")
    assert again.pending == found.pending


def test_retry_after_is_obeyed_within_a_day_and_never_shortens_our_own_wait() -> None:
    found = failing(delivery(), Failed("429", 100.0, 429), NOW)
    assert 100_000 <= (found.next_at or 0) - NOW <= 110_000
    found = failing(delivery(), Failed("429", 1e9, 429), NOW)
    assert (found.next_at or 0) - NOW <= DAY_MS * 1.1
    found = failing(delivery(failures=5, failing_since=NOW), Failed("429", 0.0, 429), NOW)
    assert (found.next_at or 0) - NOW >= 1_800_000


def test_what_is_taken_moves_the_cursor_and_a_clock_that_was_set_back_ends_nothing() -> None:
    found = state.begun(delivery(), "c1", now=NOW)
    found = failing(found, Failed("x"), NOW)
    found = failing(found, Failed("x"), NOW - 30 * DAY_MS)
    assert found.state is DeliveryState.ACTIVE
    found = state.taken(found, 7, now=NOW)
    assert (found.cursor, found.pending, found.events, found.failures) == ("c1", None, 7, 0)
    assert state.begun(found, "c2", now=NOW).batches == 2


@pytest.mark.parametrize("status", sorted(state.REFUSALS))
def test_a_refused_batch_is_halved_until_the_one_event_is_a_letter(status: int) -> None:
    refusal = Failed("no", None, status)
    found, sizes = delivery(), []
    for _ in range(8):
        size = min(found.events_at_once or found.events_max, 100)
        sizes.append(size)
        found = state.begun(found, "c", now=NOW)
        assert not state.is_letter(found, refusal, 2)
        if size == 1:
            break
        found = state.halved(found, size, "no")
    assert sizes == [100, 50, 25, 12, 6, 3, 1]
    for attempt in range(state.REFUSALS_MAX):
        is_last = attempt == state.REFUSALS_MAX - 1
        assert state.is_letter(found, refusal, 1) is is_last
        if not is_last:
            found = failing(found, refusal, NOW)
    found, letter = state.set_aside(found, '{"n":1}', "no", now=NOW)
    assert (found.cursor, found.pending, letter.number) == ("c", None, 7)
    grown = []
    for _ in range(8):
        found = state.taken(state.begun(found, "d", now=NOW), 1, now=NOW)
        grown.append(found.events_at_once)
    assert grown == [2, 4, 8, 16, 32, 64, None, None]


def test_letters_have_room_by_number_and_by_bytes() -> None:
    def letters(count: int, size: int) -> list[Letter]:
        return [Letter("ab", n, "é" * (size // 2), "c", "422", made_at=NOW) for n in range(count)]

    assert state.has_room((), "x" * (state.LETTERS_BYTES_MAX + 1)), "the first, however large"
    assert state.has_room(letters(state.LETTERS_MAX - 1, 10), "x")
    assert not state.has_room(letters(state.LETTERS_MAX, 10), "x")
    large = letters(16, state.LETTERS_BYTES_MAX // 16)
    assert state.has_room(large[1:], "x" * 100)
    assert not state.has_room(large, "x")


def test_404_ends_a_push_service_and_no_webhook() -> None:
    gone = Failed("404", None, 404)
    assert is_gone(gone, EndpointKind.PUSH_SERVICE)
    assert not is_gone(gone, EndpointKind.WEBHOOK)
    assert not is_gone(Failed("500", None, 500), EndpointKind.PUSH_SERVICE)


def test_rows_are_read_as_they_were_written_and_what_is_no_row_is_refused() -> None:
    found = state.begun(delivery(), "c1", now=NOW)
    assert decode_delivery(encode(found)) == found
    letter = Letter("ab", 3, "{}", "c", "no", NOW)
    assert decode_letter(encode(letter)) == letter
    for text in (b"[]", b"{}", b"{", b'{"streams":5}'):
        with pytest.raises(ValueError, match=r"."):
            decode_delivery(text)
        with pytest.raises(ValueError, match=r"."):
            decode_letter(text)


def test_each_of_two_secrets_signs() -> None:
    one, two = "whsec_" + "ab" * 16, "whsec_" + "cd" * 16
    both = signed_headers(f"{one} {two}", "m", "{}", at_ms=NOW)["webhook-signature"]
    alone = [signed_headers(s, "m", "{}", at_ms=NOW)["webhook-signature"] for s in (one, two)]
    assert both.split() == alone
