"""The words of a request for events, in its address and its headers."""

from __future__ import annotations

from starlette.requests import Request

from edgewake.cloud.access.event_route import words_of


def request(*headers: tuple[str, str], query: str = "") -> Request:
    sent = [(name.encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "headers": sent, "query_string": query.encode()})


def test_a_header_that_is_a_list_may_come_in_several() -> None:
    """A proxy adds its own in a line of its own; only the first was looked at."""
    found = words_of(
        request(
            ("if-none-match", '"x"'),
            ("if-none-match", '"a"'),
            ("accept", "text/html"),
            ("accept", "text/csv"),
            ("last-event-id", "v2.a"),
            query="limit=5",
        )
    )
    assert found.if_none_match == '"x", "a"'
    assert found.accept == "text/html, text/csv"
    assert (found.limit, words_of(request()).if_none_match) == ("5", "")
