"""What was begun and done, and what is over: pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgewake.edge.downlink.kept import Kept, Now
from edgewake.edge.downlink.ledger import DONE_MAX, Ledger, Step

AT = Now(1_790_000_000_000, 50.0, "boot-1")
KEPT = Kept("a", "command", "{}", 10, AT)


def test_a_kept_message_comes_back_from_the_log_as_it_was() -> None:
    assert Kept.from_reading(KEPT.reading()) == KEPT
    t, fields = KEPT.reading()
    assert (
        Kept.from_reading(
            (t, {name: value for name, value in fields.items() if name != "boot"})
        ).at.boot
        == ""
    )


@pytest.mark.parametrize(
    ("now", "is_over"),
    [
        (AT, False),
        (Now(AT.wall_ms + 10_000, 60.0, "boot-1"), False),
        # The machine slept: only the wall clock counted.
        (Now(AT.wall_ms + 10_001, 50.0, "boot-1"), True),
        (Now(AT.wall_ms, 60.1, "boot-1"), True),  # the wall clock was set back
        (Now(AT.wall_ms - 5000, 55.0, "boot-1"), False),  # set back, and the other one tells
        # Another start: nothing is known of the other clock.
        (Now(AT.wall_ms + 5000, 1.0, "boot-2"), False),
        (Now(AT.wall_ms - 1, 1.0, "boot-2"), True),  # 1970 after a start: neither can tell
    ],
)
def test_a_life_is_counted_by_the_clock_that_says_more(now: Now, is_over: bool) -> None:
    assert KEPT.is_over(now) is is_over


def test_nothing_is_known_of_the_monotonic_clock_without_a_boot_id() -> None:
    nameless = replace(KEPT, at=replace(AT, boot=""))
    assert not nameless.is_over(Now(AT.wall_ms, 1000.0, ""))


def test_steps_survive_their_encoding_and_the_oldest_done_ones_are_forgotten() -> None:
    ledger = Ledger()
    ledger.begin("open")
    for n in range(DONE_MAX + 3):
        ledger.begin(f"d{n}")
        ledger.end(f"d{n}")
    found = Ledger.decode(ledger.encode())
    assert [found.step(key) for key in ("open", "d2", "d3", f"d{DONE_MAX + 2}", "new")] == [
        Step.BEGUN,
        None,
        Step.DONE,
        Step.DONE,
        None,
    ]
    assert Ledger.decode(None).step("open") is None


def test_what_either_of_two_knows_as_done_is_done() -> None:
    older, newer = Ledger({"a": Step.BEGUN}), Ledger({"a": Step.DONE, "b": Step.BEGUN})
    for joined in (older.joined(newer), newer.joined(older)):
        assert (joined.step("a"), joined.step("b")) == (Step.DONE, Step.BEGUN)
