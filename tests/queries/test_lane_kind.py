"""Which lane a query runs in: what it has no use for it does not keep, group by group."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import registered, sql

STREAM = Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})
MINUTE = "window(event_time, '1 minute')"
DISTINCT = "count(*) AS n, max(speed) AS high, approx_count_distinct(speed) AS speeds"


@pytest.mark.parametrize(
    ("select", "group", "shed", "kind"),
    [
        ("device, max(speed) AS high", f"{MINUTE}, device", "", LaneKind.PLAIN),
        (f"device, {DISTINCT}", f"{MINUTE}, device", "", LaneKind.DISTINCT),
        (
            f"device, {DISTINCT}, approx_percentile(speed, 0.5) AS p50",
            f"{MINUTE}, device",
            "",
            LaneKind.SKETCH,
        ),
        (f"device, {DISTINCT}, var_pop(speed) AS v", f"{MINUTE}, device", "", LaneKind.SKETCH),
        (DISTINCT, MINUTE, "", LaneKind.SKETCH),
        (
            f"device, {DISTINCT}",
            f"{MINUTE}, device",
            "random above 60 seconds",
            LaneKind.SKETCH_SHED,
        ),
    ],
    ids=[
        "numbers",
        "different values of groups",
        "and a quantile",
        "and a variance",
        "different values of all",
        "may leave some out",
    ],
)
def test_a_query_of_many_groups_keeps_no_sketches_that_it_has_no_use_for(
    select: str, group: str, shed: str, kind: LaneKind
) -> None:
    queries = registered(sql("s", select, group, shed=shed), streams=[STREAM])

    ((_, found),) = jobs_of(queries, {"s": {"speed": FieldType.NUMBER}})

    assert found is kind
