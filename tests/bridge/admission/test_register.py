"""What the register of sessions tells a bridge of itself and of others."""

from __future__ import annotations

import pytest

from edgewake.cloud.bridge.admission.register import Register


def register(instance: str = "1") -> Register:
    return Register(site="plant", own="a", instance=instance)


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
    made.follow("elsewhere|a", b'{"instance":"9"}')
    made.follow("elsewhere|b", b'{"instance":"9"}')
    assert (made.sessions, made.has_twin) == (frozenset(), False)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"instance":1}'])
def test_a_row_that_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 orjson's own text or ours
        register().follow("plant|b", value)
