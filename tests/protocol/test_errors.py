"""Whose fault an error is, and what it says."""

from __future__ import annotations

import pytest

from edgewake.protocol.errors import (
    ConfigError,
    CursorError,
    EdgewakeError,
    FilterError,
    LocalError,
    QueryError,
    QueryFault,
    Rejected,
    RejectReason,
    RemoteError,
    Unavailable,
)


@pytest.mark.parametrize(
    ("kind", "whose"),
    [(ConfigError, LocalError), (Rejected, RemoteError), (CursorError, RemoteError),
     (FilterError, RemoteError), (QueryError, RemoteError), (Unavailable, Unavailable)],
)  # fmt: skip
def test_an_error_is_ours_or_theirs_or_something_is_away(
    kind: type[EdgewakeError], whose: type[EdgewakeError]
) -> None:
    every = (LocalError, RemoteError, Unavailable)
    assert [one for one in every if issubclass(kind, one)] == [whose]


def test_a_refusal_says_its_reason_and_what_was_expected() -> None:
    error = Rejected(RejectReason.SHAPE, "expected an object")
    assert (str(error), error.reason, error.detail) == (
        "shape: expected an object", RejectReason.SHAPE, "expected an object",
    )  # fmt: skip


def test_a_query_has_a_line_for_each_fault_with_its_place() -> None:
    error = QueryError("no stream", QueryFault("unknown field", 3), QueryFault("no value", 4, 7))
    assert str(error) == "no stream\nline 3: unknown field\nline 4:7: no value"


def test_who_is_away_may_say_when_to_ask_again() -> None:
    assert Unavailable("busy", retry_after_s=2.5).retry_after_s == 2.5
    assert Unavailable().retry_after_s == 0
