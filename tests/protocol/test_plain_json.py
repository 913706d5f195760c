"""Messages read without pydantic: what is taken, and that it is what pydantic takes of the same
declarations.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgewake.protocol.downlink.down_message import Command, Reply, Settings
from edgewake.protocol.downlink.feed import FeedAsk, FeedChunk
from edgewake.protocol.downlink.request import Request
from edgewake.protocol.plain import Check, Length, Matching, Plain, checker, key
from edgewake.protocol.plain_json import Misshapen, read, value_of


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("expected an even number")
    return value


class Colour(StrEnum):
    RED = "red"


class Inner(Plain):
    n: Annotated[int, Check(_even)] = 0


class Everything(Plain):
    """All that is understood."""

    text: Annotated[str, Length(1, 3), Matching("^[ab]*$")]
    whole: int = key(default=1, ge=0, le=9)
    number: float | None = key(default=None, gt=0, lt=5)
    flag: bool = False
    word: Literal["x", "y"] = "x"
    colour: Colour = Colour.RED
    list: tuple[Annotated[str, Length(0, 2)], ...] = ()
    table: dict[str, int] = key(default_factory=dict)
    inner: Inner = Inner()
    any: Any = None


KINDS = (Everything, Command, Settings, Reply, FeedAsk, FeedChunk, Request)
GOOD: dict[type[Plain], dict[str, Any]] = {
    Everything: {
        "text": "ab", "whole": 2, "number": 1.5, "flag": True, "word": "y", "colour": "red",
        "list": ["a"], "table": {"a": 1},
        "inner": {"n": 4},
    },
    Command: {"id": "a-1", "name": "restart", "args": ["x", "y"]},
    Settings: {"id": "b", "version": 7, "text": "a = 1"},
    Reply: {"id": "reply-r1", "state": "answered", "body": "12 km", "detail": ""},
    FeedAsk: {"feed": "s", "streams": ["a", "b"], "where": "n > 1", "select": None,
        "begin": "earliest", "after": "v2.x"},
    FeedChunk: {"feed": "s", "after": "", "cursor": "c", "events": [{"n": 1}],
        "gaps": [{"lost": 5}], "error": "", "retry_s": 1},
    Request: {"id": "r1", "name": "route", "body": "to", "expires_s": 5},
}  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 20), st.just(2**53),
    st.floats(-2, 8, allow_nan=False), st.text(max_size=5),
    st.sampled_from(["", "a", "ab", "a\n", "a\0", "red", "x", "A", "../s", "abab", "é", "x" * 5_000,
        "reply-x", "answered", "latest"]),
    st.lists(st.sampled_from(["a", "abc", 1, None, "\0", {}]), max_size=18),
    st.dictionaries(st.sampled_from(["a", "n"]), st.integers(0, 9), max_size=2),
)  # fmt: skip


def like(kind: type[Plain]) -> st.SearchStrategy[dict[str, Any]]:
    """A good one with a few fields changed, left out or added."""
    names = [*GOOD[kind], "later_key"]
    return st.dictionaries(st.sampled_from(names), ODD, max_size=2).flatmap(
        lambda changes: st.sets(st.sampled_from(names), max_size=1).map(
            lambda gone: {
                name: value for name, value in {**GOOD[kind], **changes}.items() if name not in gone
            }
        )
    )


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), like(kind))))
@example((Everything, {"text": "b"}))
@example((Everything, {"text": "b", "whole": 2.0}))
@example((Everything, {"text": "b", "inner": {"n": 3}}))
@example((Command, {"id": "a\n", "name": "x"}))
def test_it_takes_what_pydantic_takes_and_refuses_what_pydantic_refuses(
    case: tuple[type[Plain], dict[str, Any]],
) -> None:
    kind, values = case
    text = orjson.dumps(values)
    try:
        expected: Plain | None = checker(kind).validate_json(text, strict=True)
    except ValueError:
        expected = None
    try:
        found: Plain | None = read(kind, text)
    except Misshapen:
        found = None
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_good_is_read_and_written_as_it_was(kind: type[Plain]) -> None:
    value = read(kind, orjson.dumps(GOOD[kind]))
    assert read(kind, value.to_json()) == value
    assert {name: getattr(value, name) for name in GOOD[kind]} != {}


def test_what_is_wrong_is_named_with_its_place() -> None:
    cases = {
        "list.1: expected a length of at most 2": {"text": "a", "list": ["a", "abc"]},
        "inner.n: expected an even number": {"text": "a", "inner": {"n": 1}},
        "table.k: expected an integer": {"text": "a", "table": {"k": True}},
        "text: missing": {},
        "expected an object": [],
    }
    for says, values in cases.items():
        with pytest.raises(Misshapen) as wrong:
            value_of(Everything, values)
        assert str(wrong.value) == says


def test_a_kind_that_is_not_understood_is_an_error_of_ours() -> None:
    class Odd(Plain):
        when: set[int]

    class Number(Plain):
        """Of these pydantic takes 1.0 for 1, and we would not."""

        word: Literal["x", 1]

    for kind in (Odd, Number):
        with pytest.raises(TypeError, match="not understood"):
            value_of(kind, {"when": [], "word": "x"})
