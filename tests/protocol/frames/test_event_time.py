"""Times as devices write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.event_time import (
    TIME_MS_MAX,
    TimeRule,
    is_ms,
    looks_like,
    of_plain,
    with_time,
    zone_of,
)
from edgewake.protocol.frames.frame import from_plain, reading_of

MS = 1_790_000_000_123
MOMENTS = st.integers(946_684_800_000, TIME_MS_MAX - 1)


@given(MOMENTS)
def test_a_moment_from_2000_on_is_the_same_in_each_unit(ms: int) -> None:
    assert of_plain(ms // 1000) == ms // 1000 * 1000
    assert [of_plain(value) for value in (ms, ms * 10**3, ms * 10**6, ms * 10**6 + 999)] == [ms] * 4
    assert abs((of_plain(ms / 1000) or 0) - ms) <= 1


@pytest.mark.parametrize("t", [31_536_000_000, 946_684_799_999, TIME_MS_MAX])
def test_what_may_be_ms_is_ms(t: int) -> None:
    assert (of_plain(t), is_ms(t)) == (t, True)


@pytest.mark.parametrize(
    "t",
    [-1, 0, 1, 21, 946_684_799, 4_102_444_801, 31_535_999_999, TIME_MS_MAX + 1, 0.5, True, "x",
        None, [], 5 * 10**15, 10**30, float("nan"), float("inf"), "1970-01-01T00:00:07Z"],
)  # fmt: skip
def test_what_is_a_measurement_or_a_clock_that_was_not_set_is_no_time(t: object) -> None:
    """A temperature of 21 became the beginning of 1970: acknowledged, late in every window."""
    assert of_plain(t) is None


def test_a_plain_device_may_send_seconds() -> None:
    """They were taken for 1970: acknowledged, and left out of all windows."""
    assert from_plain(b'{"t":1790000000,"v":1}', received_at=5).t == [1_790_000_000_000]
    assert from_plain(b'{"t":1790000000.5,"v":1}', received_at=5).t == [1_790_000_000_500]
    assert reading_of({"t": 1_790_000_000_123_456, "v": 1}, now_ms=5) == (MS, {"v": 1})


NOON = 1_782_907_200_000
LOCAL = "iso without a zone"
BERLIN = zone_of("Europe/Berlin")


@pytest.mark.parametrize(
    ("rule", "body", "found", "said"),
    [
        (TimeRule("tst"), {"tst": 1_790_000_000, "v": 1}, {"t": 1_790_000_000_000, "v": 1}, []),
        (TimeRule("a.ts", "ms"), {"a": {"ts": MS, "b": 2}}, {"t": MS, "a": {"b": 2}}, []),
        (TimeRule("a.ts", "ms"), {"a": {"ts": MS}, "v": 1}, {"t": MS, "v": 1}, []),
        (TimeRule("a.ts"), {"a.ts": MS, "v": 1}, {"t": MS, "v": 1}, []),
        (TimeRule("Time", zone=BERLIN), {"Time": "2026-07-01T12:00:00", "v": 1},
            {"t": 1_782_900_000_000, "v": 1}, []),
        (TimeRule("d", "%d.%m.%Y %H:%M", BERLIN), {"d": "01.01.2026 01:00", "v": 1},
            {"t": 1_767_225_600_000, "v": 1}, []),
        (TimeRule("tst"), {"v": 1}, {"v": 1}, ["no time in tst"]),
        (TimeRule("tst"), {"tst": "soon", "v": 1}, {"tst": "soon", "v": 1}, ["no time in tst"]),
        (TimeRule("tst"), {"tst": 10**310}, {"tst": 10**310}, ["no time in tst"]),
        (TimeRule("auto"), {"last_seen": MS, "v": 1}, {"t": MS, "v": 1},
            ["time from last_seen (ms)"]),
        (TimeRule("auto"), {"Time": "2026-07-01T12:00:00", "v": 1}, {"t": NOON, "v": 1},
            [f"time from Time ({LOCAL})"]),
        (TimeRule("auto"), {"time": 12.5, "timestamp": "2026-07-01T12:00:00Z"},
            {"time": 12.5, "t": NOON}, ["time from timestamp (iso)"]),
        (TimeRule("auto"), {"date": "2026-07-01", "v": 1}, {"date": "2026-07-01", "v": 1},
            ["no time found"]),
        (TimeRule("auto"), {"t": MS, "ts": 5}, {"t": MS, "ts": 5}, []),
        (TimeRule(), {"time": MS}, {"time": MS}, []),
        (TimeRule(), {"t": 1_790_000_000, "v": 1}, {"t": 1_790_000_000_000, "v": 1}, ["t in s"]),
        (TimeRule(), {"t": MS, "v": 1}, {"t": MS, "v": 1}, []),
        (TimeRule(), {"t": 21, "v": 1}, {"t": 21, "v": 1}, ["no time in t"]),
        (TimeRule(), {"t": "0001-01-01T00:00:00Z"}, {"t": "0001-01-01T00:00:00Z"},
            ["no time in t"]),
        (TimeRule("auto"), {"t": 21.5, "ts": MS}, {"t": MS, "t_": 21.5},
            ["no time in t", "time from ts (ms)"]),
        (TimeRule("auto"), {"timestamp": "0001-01-01T00:00:00Z", "v": 1},
            {"timestamp": "0001-01-01T00:00:00Z", "v": 1}, ["no time found"]),
        (TimeRule("Time"), {"t": 21, "Time": MS}, {"t": MS, "t_": 21}, ["no time in t"]),
        (TimeRule("Time"), {"t": 21, "t_": 3, "Time": MS}, {"t": MS, "t_": 3, "t__": 21},
            ["no time in t"]),
    ],
    ids=range(23),
)  # fmt: skip
def test_the_time_of_a_reading_and_what_is_said_of_it(
    rule: TimeRule, body: dict[str, Any], found: dict[str, Any], said: list[str]
) -> None:
    before, heard = str(body), list[str]()
    assert with_time(body, rule, heard.append) == found
    assert (heard, str(body)) == (said, before), "the object itself stays as it is"


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        (TimeRule("tst", refuses=True), {"v": 1}),
        (TimeRule("tst", refuses=True), {"tst": "soon"}),
        (TimeRule("auto", refuses=True), {"v": 1}),
        (TimeRule(converts_t=False), {"t": 1_790_000_000, "v": 1}),
    ],
)
def test_by_policy_a_reading_without_its_time_is_refused(
    rule: TimeRule, body: dict[str, Any]
) -> None:
    with pytest.raises(Rejected, match=r"expected|missing"):
        with_time(body, rule, lambda _: None)


@pytest.mark.parametrize(
    ("value", "looks"),
    [(MS // 1000, "s"), (MS, "ms"), (MS * 1000, "us"), (MS * 10**6, "ns"),
        ("2026-07-01T12:00:00+02:00", "iso"),
     ("2026-07-01 12:00", LOCAL),
     (12.5, ""), (True, ""), ("21.5", ""), ("2026-07-01", ""), (None, ""), ([], ""), ("now", "")],
)  # fmt: skip
def test_what_a_value_looks_like(value: object, looks: str) -> None:
    assert looks_like(value) == looks


@pytest.mark.parametrize(
    ("body", "rule", "ways"),
    [
        ({"t": MS, "v": 1}, TimeRule(), []),
        ({"v": 1}, TimeRule("auto"), []),
        ({"t": 1_790_000_000, "v": 1}, TimeRule(), ["t (s)"]),
        ({"t": "2026-07-01T12:00:00Z"}, TimeRule(), ["t (iso)"]),
        ({"ts": 1_790_000_000, "v": 1}, TimeRule("auto"), ["ts (s)"]),
        ({"at": {"ms": MS}, "v": 1}, TimeRule("at.ms"), ["at.ms (ms)"]),
        ({"at": MS * 10**3, "v": 1}, TimeRule("at", "us"), ["at (us)"]),
        ({"at": 200_000_000, "v": 1}, TimeRule("at"), ["at (by its size)"]),
        ({"at": "01.07.2026", "v": 1}, TimeRule("at", "%d.%m.%Y"), ["at (%d.%m.%Y)"]),
        ({"at": "soon", "v": 1}, TimeRule("at"), []),
    ],
)
def test_where_a_time_was_found_and_in_which_form(
    body: dict[str, Any], rule: TimeRule, ways: list[str]
) -> None:
    found: list[str] = []
    with_time(body, rule, lambda _: None, found.append)
    assert found == ways
