"""Plain values: checked where they come in, and light afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from edgewake.protocol.plain import Check, ConfigTable, Length, Matching, Plain, key


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("expected an even number")
    return value


class Thing(Plain):
    name: Annotated[str, Matching("^[a-z]+$"), Length(1, 4)]
    count: Annotated[int, Check(_even)] = key(default=0, ge=0, le=10)


class Keys(ConfigTable):
    count: int = 0


def test_a_value_is_checked_from_values_and_from_json_and_written_so_that_it_is_read() -> None:
    thing = Thing.checked({"name": "ab", "count": 4, "of_a_later_version": 1})
    assert thing == Thing(name="ab", count=4)
    assert Thing.from_json(thing.to_json()) == thing


@pytest.mark.parametrize(
    ("change", "why"),
    [({"name": "A"}, "pattern"), ({"name": "abcde"}, "at most 4"), ({"count": 3}, "even number"),
     ({"count": -2}, "greater than or equal"), ({"count": "x"}, "integer"),
     ({"name": None}, "valid string")],
)  # fmt: skip
def test_what_is_not_good_is_named(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Thing.checked({"name": "ab"} | change)


def test_a_key_that_nobody_knows_is_refused_in_a_configuration() -> None:
    with pytest.raises(ValidationError, match="Unexpected keyword argument"):
        Keys.checked({"cuont": 1})


def test_a_value_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Thing(name="ab").count = 2  # type: ignore[misc]


def test_what_only_holds_values_imports_no_pydantic() -> None:
    code = (
        "import sys\nfrom edgewake.protocol.downlink.feed import FeedAsk\n"
        "FeedAsk(feed='a', streams=('b',)).to_json()\n"
        "assert 'edgewake.protocol.plain' in sys.modules, 'control'\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
