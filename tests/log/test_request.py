"""Where a client begins: decided without I/O."""

from __future__ import annotations

import pytest

from edgewake.cloud.log.request import LogEnd, RequestError, parse_start, request

NOW = 1_795_248_000_000


def test_streams_are_sorted_and_each_counts_once() -> None:
    assert request(["b", "a", "b"], now_ms=NOW).subscription.streams == ("a", "b")


def test_the_first_cursor_that_is_given_counts() -> None:
    assert request(["a"], now_ms=NOW, cursors=(None, "", "v1.x", "v1.y")).cursor == "v1.x"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", LogEnd.EARLIEST),
        ("latest", LogEnd.LATEST),
        ("1790000000000", 1_790_000_000_000),
        ("2026-11-21T08:00:00Z", 1_795_248_000_000),
        ("2026-11-21T09:00:00.5+01:00", 1_795_248_000_500),
        ("2026-11-21T09:00:00 01:00", 1_795_248_000_000),
        ("-15m", NOW - 900_000),
        ("-30s", NOW - 30_000),
        ("-2h", NOW - 7_200_000),
        ("-7d", NOW - 604_800_000),
        ("-999999999d", 0),
    ],
)
def test_a_start_is_an_edge_or_a_time(text: str, start: LogEnd | int) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    "text",
    ["yesterday", "-5", "-15", "-m", "-1w", "15m", "99999999999999999", "9" * 5000, "٣", "nan"],
)
def test_a_start_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="expected earliest, latest") as caught:
        parse_start(text, NOW)
    assert caught.value.code == "from"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1795248000", "did you mean 1795248000000?"),
        ("0", "from=earliest"),
        ("99999999999", "seconds"),
    ],
)
def test_a_start_in_seconds_is_refused_because_it_would_send_everything_since_1970(
    text: str, hint: str
) -> None:
    with pytest.raises(RequestError, match="expected milliseconds") as caught:
        parse_start(text, NOW)
    assert hint in str(caught.value)


@pytest.mark.parametrize("text", ["2026-11-21T08:00:00", "2026-11-21 08:00", "2026-11-21"])
def test_a_start_without_a_zone_is_refused_by_that_reason(text: str) -> None:
    with pytest.raises(
        RequestError, match=r"a time zone is missing; expected 2026-11-21T0[08]:00:00Z"
    ):
        parse_start(text, NOW)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"on_gap": "x"}, "on_gap"),
        ({"checkpoint": "x"}, "checkpoint"),
        ({"start": "x"}, "from"),
        ({"beat": "x"}, "beat"),
        ({"absent": "x"}, "absent"),
    ],
)
def test_a_wrong_word_is_refused_by_its_name(words: dict[str, str], code: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(["a"], now_ms=NOW, **words)
    assert caught.value.code == code


@pytest.mark.parametrize("streams", [[], [f"s{i}" for i in range(17)], ["s"] * 17])
def test_a_subscription_has_one_to_sixteen_streams(streams: list[str]) -> None:
    with pytest.raises(RequestError, match="1 to 16"):
        request(streams, now_ms=NOW)
