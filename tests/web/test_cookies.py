"""Cookies of ours beside those of other programs of the same host."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.cloud.rights import guard
from edgewake.cloud.web.cookies import cookie_of


def scope(*lines: str) -> dict[str, Any]:
    return {"headers": [(b"cookie", line.encode("latin-1")) for line in lines]}


@pytest.mark.parametrize(
    "other",
    ['prefs={"a": 1}', "a=b c", "flag", 'a="x" y', "naïve=1", "a=é", "=", "a==b", "x@y=[1, 2]"],
)
def test_a_cookie_of_another_program_hides_none_of_ours(other: str) -> None:
    """Who was logged in was nobody as soon as a neighbour at another port kept its settings."""
    for lines in ([f"{other}; ours=1-_a"], [f"ours=1-_a; {other}"], [other, "ours=1-_a"]):
        assert cookie_of(scope(*lines), "ours") == "1-_a"
    key = scope(f"{other}; {guard.COOKIE}=the-key")
    assert guard.cookie_of(key) == b"the-key"


def test_what_is_not_there_is_none() -> None:
    for lines in ([], [""], ["ours"], ["not_ours=1; ours2=2"]):
        assert cookie_of(scope(*lines), "ours") is None
    assert cookie_of(scope('ours="quoted"'), "ours") == "quoted"
    assert cookie_of(scope("ours="), "ours") == ""
