"""What the register of sessions tells a bridge of itself and of others."""

from __future__ import annotations

import pytest

from edgewake.cloud.bridge.admission.register import HEIR_S, Register


class Now:
    s = 100.0


def register(instance: str = "1", own: str = "a") -> Register:
    return Register(site="plant", own=own, instance=instance, monotonic_s=lambda: Now.s)


def test_an_owner_and_the_heir_of_its_session_see_what_stands_before_their_rows() -> None:
    owner, heir = register(), register("9", own="b")
    for one in (owner, heir):
        one.follow(*owner.row())
        one.follow(*heir.heir_row("a"))
    before = heir.standing("a")
    assert (owner.our_heir, heir.is_ours("a"), heir.our_heir) == ("b", True, None)
    owner.ask()
    assert not owner.is_told, "what stands before the new row is not known yet"
    for one in (owner, heir):
        one.follow(*owner.row())
    assert owner.is_told
    assert not owner.has_twin, "it is the same process"
    assert heir.standing("a") != before, "it is wanted back"
    owner.follow(owner.heir_key("a"), None)
    assert (owner.our_heir, owner.has_dead_heir) == (None, False)
    assert owner.sessions == {"a"}, "the row of an heir stands for no session"


def test_an_heir_that_does_not_repeat_its_row_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = register()
    owner.follow(*register("9", own="b").heir_row("a"))
    monkeypatch.setattr(Now, "s", Now.s + HEIR_S - 1)
    assert owner.our_heir == "b"
    owner.follow(*register("9", own="b").heir_row("a"))
    monkeypatch.setattr(Now, "s", Now.s + HEIR_S - 1)
    assert owner.our_heir == "b", "it has repeated it"
    monkeypatch.setattr(Now, "s", Now.s + 1)
    assert (owner.our_heir, owner.has_dead_heir) == (None, True)


def test_our_own_row_is_missing_until_it_came_back() -> None:
    made = register()
    assert made.is_missing
    made.follow(*made.row())
    assert (made.is_missing, made.has_twin, made.sessions) == (False, False, {"a"})


def test_a_process_that_started_later_under_our_name_is_a_twin() -> None:
    older, newer = register("1"), register("2")
    for one in (older, newer):
        one.follow(*older.row())
        one.follow(*newer.row())
    assert (older.has_twin, newer.has_twin) == (True, False)


def test_a_row_that_was_deleted_is_no_twin() -> None:
    """Our session was adopted while we were frozen."""
    made = register()
    made.follow(*made.row())
    made.follow(made.key("a"), None)
    assert (made.is_missing, made.has_twin) == (True, False)


def test_bridges_of_another_broker_are_none_of_ours() -> None:
    made = register()
    made.follow("elsewhere|a", b'{"instance":"9","asked":0}')
    made.follow("elsewhere|b", b'{"instance":"9","asked":0}')
    assert (made.sessions, made.has_twin) == (frozenset(), False)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"instance":1,"asked":0}'])
def test_a_row_that_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 orjson's own text or ours
        register().follow("plant|b", value)
