"""What a rebuild does next, what it refuses, and what of the states on `ew.windows` is kept.

No Kafka, no Spark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints.state_rows import unowned
from edgewake.cloud.analysis.folds.sequences import KeyState, Open, dump
from edgewake.cloud.analysis.jobs.sequence_job import SequenceJob
from edgewake.cloud.analysis.lanes.batch_range import ranges
from edgewake.cloud.analysis.repair.rebuild import Plan, check
from edgewake.cloud.analysis.repair.refold import Impossible
from edgewake.cloud.analysis.repair.repair import (
    Compute,
    Done,
    Refuse,
    Replace,
    Standing,
    first_from,
    step,
)
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.repair import Repair, RepairKind
from tests.analysis.support import T0, registered

MINUTE = 60_000
STREAM = Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})
RECORD = LaneRecord(stream="s", lane="plain", revision=4, top=T0 + 10 * MINUTE)
ASKED = Repair(
    id="r", query="q", registered_at=1, kind=RepairKind.REBUILD, begin=0, asked_at=0,
    asked_by="test", updated_at=0,
)  # fmt: skip


def query(group: str, select: str = "count(*) AS n") -> Registered:
    """A query of the stream, without lateness."""
    (found,) = registered(
        f"-- name: q\n-- lateness: 0 seconds\nSELECT {select} FROM s GROUP BY {group}",
        streams=[STREAM],
    )
    return found


def standing(group: str, *others: str) -> Standing:
    """It runs, with others in its lane."""
    mine = query(group)
    return Standing(
        mine,
        RECORD,
        {"s": {"speed": FieldType.NUMBER}},
        (mine, *(query(other) for other in others)),
    )


def next_step(group: str, **update: Any) -> object:
    return step(ASKED.model_copy(update=update), 1, standing(group))


MINUTES = "window(event_time, '1 minute')"
COUNTED = "count_window(3)"


def test_the_state_is_replaced_first_and_closed_windows_follow() -> None:
    end = T0 + 9 * MINUTE + 1
    assert next_step(MINUTES) == next_step(COUNTED) == Replace()
    done = {"removed_at": 5, "done_to": T0, "end": end}
    assert next_step(MINUTES, **done) == Compute(T0, end, end)
    assert next_step(MINUTES, **(done | {"done_to": end})) == Done()
    assert next_step(COUNTED, removed_at=5) == Done()
    assert isinstance(next_step(COUNTED, kind=RepairKind.REPAIR), Refuse)
    rows = standing(MINUTES)
    no_windows = replace(
        rows,
        registered=registered(
            "-- name: q\nSELECT device, speed FROM s WHERE speed > 0", streams=[STREAM]
        )[0],
    )
    assert step(ASKED, 1, no_windows) == Done("a query without aggregates keeps no state")


@pytest.mark.parametrize(
    ("group", "others", "kept_from", "refused"),
    [
        (MINUTES, [], None, None),
        (MINUTES, [], T0 + 9 * MINUTE, None),
        (MINUTES, [], T0 + 9 * MINUTE + 2, "belong to open windows of q; use --lossy"),
        (
            MINUTES,
            ["window(event_time, '1 hour')"],
            T0 + 5 * MINUTE,
            "belong to open windows of q; use --lossy",
        ),
        (COUNTED, [], T0, "may have begun; use --lossy"),
    ],
)
def test_what_retention_took_of_open_windows_is_not_lost_unasked(
    group: str, others: list[str], kept_from: int | None, refused: str | None
) -> None:
    plan = Plan(RECORD, ("ew.s.s",), 1, kept_from)
    check(plan, ASKED.model_copy(update={"lossy": True}), standing(group, *others))
    if refused is None:
        check(plan, ASKED, standing(group, *others))
        return
    with pytest.raises(Impossible, match=re.escape(refused)):
        check(plan, ASKED, standing(group, *others))


@given(
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 20), st.integers(1, 40))),
    st.integers(1, 15),
)
def test_ranges_have_every_offset_once_and_in_order(
    partitions: dict[int, tuple[int, int]], count: int
) -> None:
    start = {p: first for p, (first, _) in partitions.items()}
    end = {p: first + length for p, (first, length) in partitions.items()}
    at = dict(start)
    for first, last in ranges(start, end, count):
        assert {p: at[p] for p in first} == first
        assert sum(last[p] - first[p] for p in first) <= count + len(partitions)
        at |= last
    assert at == end


@pytest.mark.parametrize("time_ms", [T0, T0 + 1, T0 + 59_999])
def test_the_first_window_from_a_time_begins_then_or_later(time_ms: int) -> None:
    for window in (
        Window(size_ms=MINUTE, slide_ms=20_000),
        Window(size_ms=1, slide_ms=1, unit="day"),
    ):
        first = first_from(window, time_ms)
        assert time_ms <= first < time_ms + (window.slide_ms if window.unit is None else 86_400_000)
        assert window.latest(first)[0] == first


def test_states_are_kept_as_long_as_their_query_is_registered() -> None:
    keys = ["s|a@1|{}", "join.s|a@1|@", 's|b@1|{"x":"|a@1|"}', "s|a@2|{}"]
    assert unowned(keys, {"a@1"}) == keys[2:]


def test_after_a_pause_everything_goes_on_but_absences_that_were_waited_for() -> None:
    """Somebody may have been heard meanwhile; one that was told lasts until somebody is heard."""
    quiet, hot = (
        query("absence_window(event_time, '30 seconds'), device", "device, count(*) AS n"),
        query("threshold_window(speed > 80)"),
    )
    hot = Registered(hot.query, 2)

    def state(*, is_emitted: bool) -> bytes:
        return orjson.dumps(
            dump(KeyState([Open(T0, T0 + 30_000, [], 1)], rule=True if is_emitted else None))
        )

    rows = {
        f"s|{quiet.label}|told": state(is_emitted=True),
        f"s|{quiet.label}|waits": state(is_emitted=False),
        f"s|{hot.label}|x": state(is_emitted=False),
        "s|paused@9|x": state(is_emitted=False),
    }
    for heard, kept in (({quiet.label, hot.label}, {"told", "waits"}), (set(), {"told"})):
        record = RECORD.model_copy(update={"joined_at_offsets": {label: {} for label in heard}})
        found = SequenceJob(LaneKind.SEQUENCE, ("s",), (), (quiet, hot)).restored(rows, record)
        assert (set(found.of[quiet.label]), set(found.of[hot.label])) == (kept, {"x"})
        assert found.gone == ([] if "waits" in kept else [f"s|{quiet.label}|waits"])
