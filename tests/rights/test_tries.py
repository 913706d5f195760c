"""How often a client may be wrong, and that it keeps no other out."""

from __future__ import annotations

import pytest

from edgewake.cloud.rights import tries as module
from edgewake.cloud.rights.tries import ALL_MAX, OWN_MAX, OWN_S, Tries
from edgewake.protocol.clock import FakeClock


def test_a_client_that_is_wrong_too_often_waits_and_no_other_does() -> None:
    clock = FakeClock()
    tries = Tries(clock)
    assert [tries.take("a") for _ in range(OWN_MAX + 1)] == [0.0] * OWN_MAX + [OWN_S]
    assert tries.take("b") == 0
    clock.advance(OWN_S)
    assert [tries.take("a"), tries.take("a")] == [0, pytest.approx(OWN_S)]


def test_who_is_right_spends_nothing_and_the_same_wrong_word_is_one_guess() -> None:
    tries = Tries(FakeClock())
    for _ in range(5 * OWN_MAX):
        assert tries.take("a", b"right-right") == 0
        tries.give_back("a", b"right-right")
    assert [tries.take("a", b"old-key-of-a-program") for _ in range(50)] == [0.0] * 50
    assert [tries.take("a", bytes([n] * 8)) > 0 for n in range(OWN_MAX)] == [False] * 9 + [True]


def test_however_many_are_wrong_one_that_was_not_still_has_a_try() -> None:
    tries = Tries(FakeClock())
    for number in range(ALL_MAX):
        assert tries.take(f"n{number}") == 0
    assert (tries.take("n1") > 0, tries.take("new"), tries.take("new") > 0) == (True, 0, True)


def test_clients_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    tries = Tries(FakeClock())
    for _ in range(OWN_MAX):
        tries.take("a")
    tries.take("b")
    assert tries.take("a") > 0
    tries.take("c")
    assert tries.take("a") == 0, "it was wrong longest ago, and is forgotten"
