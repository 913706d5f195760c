"""For how long a message of the cloud is worth doing, by clocks that are not set, jump, and begin
anew.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.downlink.kept import Kept, Now
from edgewake.protocol.clock import CLOCK_FLOOR_MS
from edgewake.protocol.downlink.downlink import DownKind

SET = 1_790_000_000_000
HOUR_MS = 3_600_000
LIFE_S = 60


def came(wall_ms: int, monotonic_s: float = 100.0, boot: str = "a") -> Kept:
    return Kept("id", "command", "{}", LIFE_S, Now(wall_ms, monotonic_s, boot))


@pytest.mark.parametrize(
    ("kept", "now", "is_over"),
    [
        pytest.param(came(SET), Now(SET + 59_000, 159.0, "a"), False, id="within its life"),
        pytest.param(came(SET), Now(SET + 60_000, 160.0, "a"), False, id="at its very end"),
        pytest.param(
            came(SET), Now(SET + 60_001, 160.0, "a"), True, id="a moment after, by the wall"
        ),
        pytest.param(
            came(SET), Now(SET + 60_000, 160.1, "a"), True, id="a moment after, by the other"
        ),
        pytest.param(
            came(SET),
            Now(SET + HOUR_MS, 101.0, "a"),
            True,
            id="the clock was set forward an hour, or the machine slept",
        ),
        pytest.param(
            came(SET),
            Now(SET - HOUR_MS, 101.0, "a"),
            False,
            id="the clock was set back an hour a second ago",
        ),
        pytest.param(
            came(SET),
            Now(SET - HOUR_MS, 161.0, "a"),
            True,
            id="the clock was set back an hour, and a minute has passed",
        ),
        pytest.param(
            came(SET), Now(SET + 1000, 1.0, "b"), False, id="after a quick start of the machine"
        ),
        pytest.param(
            came(SET), Now(SET + 61_000, 1.0, "b"), True, id="after a slow start of the machine"
        ),
        pytest.param(came(SET), Now(1000, 1.0, "b"), True, id="after a start that lost the clock"),
        pytest.param(came(5000), Now(6000, 101.0, "a"), False, id="in 1970, a second ago"),
        pytest.param(
            came(5000), Now(SET, 101.0, "a"), False, id="in 1970, and the clock was set since"
        ),
        pytest.param(
            came(5000),
            Now(SET, 161.0, "a"),
            True,
            id="in 1970, the clock was set since, and a minute has passed",
        ),
        pytest.param(
            came(5000),
            Now(6000, 1.0, "b"),
            True,
            id="in 1970, and it is 1970 again: who knows how long it was off?",
        ),
        pytest.param(
            came(5000), Now(SET, 1.0, "b"), True, id="in 1970 before a start that set the clock"
        ),
        pytest.param(
            came(CLOCK_FLOOR_MS - 1),
            Now(CLOCK_FLOOR_MS + 5000, 1.0, "b"),
            True,
            id="a moment before what can be",
        ),
        pytest.param(
            came(CLOCK_FLOOR_MS),
            Now(CLOCK_FLOOR_MS + 5000, 1.0, "b"),
            False,
            id="the first moment that can be",
        ),
        pytest.param(
            came(5000, boot=""),
            Now(6000, 101.0, ""),
            True,
            id="in 1970 on a machine that names no starts",
        ),
    ],
)
def test_it_is_over_when_a_clock_says_so_or_none_can_tell(
    kept: Kept, now: Now, is_over: bool
) -> None:
    assert kept.is_over(now) is is_over


WALLS = st.integers(0, HOUR_MS) | st.integers(SET, SET + HOUR_MS)
BOOTS = st.sampled_from(["a", "b", ""])
NOWS = st.builds(Now, WALLS, st.floats(0, 1e7), BOOTS)


@given(NOWS, NOWS)
def test_a_message_of_another_start_is_never_done_by_an_unset_clock(at: Now, now: Now) -> None:
    kept = Kept("id", "command", "{}", 30 * 86_400, at)
    if min(at.wall_ms, now.wall_ms) < CLOCK_FLOOR_MS and at.boot != now.boot:
        assert kept.is_over(now)


@given(NOWS, st.floats(0, 1e6), st.integers(0, 10**6))
def test_within_one_start_it_is_over_at_the_latest_when_its_seconds_are(
    at: Now, passed_s: float, wall_jump_ms: int
) -> None:
    kept = Kept("id", "command", "{}", LIFE_S, at)
    later = Now(max(0, at.wall_ms - wall_jump_ms), at.monotonic_s + passed_s, at.boot)
    if at.boot and later.monotonic_s - at.monotonic_s > LIFE_S:
        assert kept.is_over(later)


@given(st.sampled_from(list(DownKind)), st.text(max_size=20), st.integers(0, 10**6), NOWS)
def test_it_comes_back_from_the_log_as_it_was(
    kind: DownKind, body: str, expires_s: int, at: Now
) -> None:
    kept = Kept("id", kind.value, body, expires_s, at)
    t, fields = kept.reading()
    assert Kept.from_reading((t, orjson.loads(orjson.dumps(fields)))) == kept


ROW: dict[str, Any] = {
    "id": "a",
    "kind": "command",
    "body": "{}",
    "expires_s": 60,
    "monotonic_s": 1.0,
    "boot": "a",
}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"kind": "firmware"}, id="of a kind that only a later version knows"),
        pytest.param({"kind": None}, id="of no kind"),
        pytest.param({"expires_s": "soon"}, id="a life that is not a number"),
        pytest.param({"monotonic_s": "x"}, id="a time that is not a number"),
    ],
)
def test_a_row_that_is_no_message_is_refused_by_an_error_that_is_expected(
    odd: dict[str, Any],
) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Kept.from_reading((SET, ROW | odd))


@pytest.mark.parametrize("missing", ["id", "kind", "body", "expires_s", "monotonic_s"])
def test_a_row_without_one_of_its_fields_is_none(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        Kept.from_reading((SET, {name: value for name, value in ROW.items() if name != missing}))


def test_a_row_whose_life_is_null_is_over_at_once() -> None:
    kept = Kept.from_reading((SET, ROW | {"expires_s": None, "monotonic_s": None, "boot": None}))
    assert (kept.expires_s, kept.at) == (0, Now(SET, 0.0, ""))
    assert kept.is_over(Now(SET + 1, 0.0, ""))
