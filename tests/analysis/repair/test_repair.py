"""Which windows a repair computes next, and what of it is news: without Spark and Kafka."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edgewake.cloud.analysis.checkpoints.log_reader import Row
from edgewake.cloud.analysis.repair.repair import (
    Compute,
    Done,
    Refuse,
    Replace,
    Standing,
    Wait,
    changes,
    first_begin,
    reads_from,
    reads_to,
    step,
)
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.ops.services.repairs import oldest_ended
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops import repair as repair_rows
from edgewake.protocol.ops.repair import Repair, RepairKind, RepairState
from tests.analysis.support import T0, sql

MINUTE = 60_000
CATALOGUE = {"s": Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})}


def query(
    window: str = "window(event_time, '1 minute')", *, having: str = "", reopen: str = ""
) -> Registered:
    text = sql(
        "s",
        "device, count(*) AS n",
        f"{window}, device {having}",
        name="q",
        lateness="30 seconds",
        reopen=reopen,
    )
    return Registered(parse(text, CATALOGUE), 7)


def asked(**more: Any) -> Repair:
    facts = {
        "id": "r",
        "query": "q",
        "registered_at": 7,
        "begin": T0,
        "asked_at": 1,
        "asked_by": "me",
        "updated_at": 1,
    }
    return Repair.model_validate(facts | more)


def standing(
    top: int | None, *, complete_from: int | None = None, registered: Registered | None = None
) -> Standing:
    label = {} if complete_from is None else {"q@7": complete_from}
    return Standing(
        registered or query(),
        LaneRecord(stream="s", lane="plain", top=top, complete_from=label),
        {},
    )


def test_only_closed_windows_are_computed_again() -> None:
    """With 30 s of lateness the windows up to the third minute are closed at 3:30; the one that
    begins at the third is not.
    """
    at = standing(T0 + 3 * MINUTE + 30_000)
    assert step(asked(begin=T0 + 5), 7, at) == Compute(T0, T0 + 2 * MINUTE + 1, T0 + 2 * MINUTE + 1)
    assert step(asked(end=T0 + MINUTE), 7, at) == Compute(T0, T0 + MINUTE, T0 + MINUTE)
    assert step(asked(end=T0 + 9 * MINUTE), 7, at) == Compute(
        T0, T0 + 2 * MINUTE + 1, T0 + 2 * MINUTE + 1
    )
    assert step(asked(begin=T0 + 3 * MINUTE), 7, at) == Done()
    reopened = standing(T0 + 3 * MINUTE + 30_000, registered=query(reopen="1 minute"))
    assert step(asked(), 7, reopened) == Compute(T0, T0 + MINUTE + 1, T0 + MINUTE + 1)


def test_windows_of_before_the_query_are_waited_for_until_they_are_closed() -> None:
    fill = asked(kind=RepairKind.BACKFILL)
    end = T0 + 10 * MINUTE + 5
    first = step(fill, 7, standing(T0 + 3 * MINUTE + 30_000, complete_from=end))
    assert first == Compute(T0, T0 + 2 * MINUTE + 1, end)
    begun = fill.model_copy(update={"end": end, "done_to": first.stop})
    assert isinstance(step(begun, 7, standing(T0 + 5 * MINUTE, complete_from=end)), Wait)
    assert step(begun, 7, standing(T0 + 13 * MINUTE, complete_from=end)) == Compute(
        first.stop, end, end
    )
    assert step(begun.model_copy(update={"done_to": end}), 7, standing(T0 + 13 * MINUTE)) == Done()
    assert isinstance(step(fill, 7, standing(T0 + 3 * MINUTE)), Done), "it lacks nothing"


def test_it_waits_for_its_query_and_ends_with_it() -> None:
    assert isinstance(step(asked(), 7, None), Wait)
    assert isinstance(step(asked(), 7, standing(None)), Wait)
    assert "removed" in getattr(step(asked(), None, None), "detail", "")
    assert isinstance(step(asked(), 8, standing(T0)), Refuse)
    rows = Registered(parse("-- name: q\nSELECT speed FROM s", CATALOGUE), 7)
    assert isinstance(step(asked(), 7, standing(T0, registered=rows)), Refuse)


BOTH = {
    name: Stream(name=name, fields={"speed": FieldInfo(type=FieldType.NUMBER)})
    for name in ("s", "o")
}
PAIRED = (
    "FROM s JOIN o ON s.device = o.device AND o.event_time BETWEEN s.event_time - INTERVAL 20 "
    "SECONDS AND s.event_time + INTERVAL 1 MINUTE"
)


def joined(text: str) -> Standing:
    """It runs, and event time is at the third minute; it waits a minute for partners, and has half
    a minute of lateness.
    """
    registered = Registered(parse(f"-- name: q\n-- lateness: 30 seconds\n{text}", BOTH), 7)
    return standing(T0 + 3 * MINUTE + 30_000, registered=registered)


def test_of_two_joined_streams_what_no_partner_can_change_any_more_is_closed() -> None:
    rows, windows = (
        joined(f"SELECT s.speed {PAIRED}"),
        joined(f"SELECT count(*) AS n {PAIRED} GROUP BY window(event_time, '1 minute')"),
    )
    end = T0 + 2 * MINUTE
    assert step(asked(begin=T0), 7, rows) == Compute(T0, end, end)
    assert step(asked(begin=T0 + 5), 7, windows) == Compute(T0, T0 + MINUTE + 1, T0 + MINUTE + 1)
    assert step(asked(kind=RepairKind.REBUILD), 7, rows) == Replace()
    assert (
        step(asked(kind=RepairKind.REBUILD, removed_at=9, done_to=end, end=end), 7, rows) == Done()
    )
    query = rows.registered.query
    (look_back, join) = (
        joined(f"SELECT {text}")
        for text in (
            "robust_zscore(speed, 5) AS z FROM s",
            "o.speed FROM s JOIN o ON s.device = o.device",
        )
    )
    for one in (look_back, join):
        bound = T0 + 3 * MINUTE
        assert step(asked(begin=T0), 7, one) == Compute(T0, bound, bound)
    assert (reads_from(query, T0), reads_to(query, T0)) == (T0 - 20_000, T0 + MINUTE + 1)


@pytest.mark.parametrize("kind", RepairKind)
@pytest.mark.parametrize(
    ("header", "join"),
    [
        ("-- foreign: tariffs (price number) from erp.tariffs\n", "tariffs t ON s.tariff = t.key"),
        ("", "devices t ON s.device = t.device"),
    ],
    ids=["foreign", "devices"],
)
def test_what_was_joined_with_rows_that_kafka_forgot_is_not_computed_again_and_what_to_do_is_said(
    kind: RepairKind, header: str, join: str
) -> None:
    text = (
        f"-- name: q\n{header}SELECT count(*) AS n FROM s JOIN {join} GROUP BY window(event_time, "
        "'1 hour')"
    )
    fields = {"speed": FieldInfo(type=FieldType.NUMBER), "tariff": FieldInfo(type=FieldType.STRING)}
    joined = Registered(parse(text, {"s": Stream(name="s", fields=fields)}), 7)
    found = step(asked(kind=kind), 7, standing(T0 + 9 * MINUTE, registered=joined))
    assert isinstance(found, Refuse)
    assert all(
        part in found.detail
        for part in (
            "keeps only the last row of each key",
            "`reopen`",
            "a stream",
            "under a new name",
        )
    )


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "SELECT count(*) AS n FROM s GROUP BY count_window(5)",
            RepairKind.REPAIR,
            "`query rebuild` computes all of them again",
        ),
        (
            "SELECT count(*) AS n FROM s JOIN o ON s.device = o.device",
            RepairKind.REPAIR,
            "`query rebuild` computes it again",
        ),
        ("SELECT robust_zscore(speed, 5) AS z FROM s", RepairKind.REBUILD, None),
        (
            "SELECT state FROM s JOIN devices d ON s.device = d.device",
            RepairKind.REPAIR,
            "add it under a new name",
        ),
        ("SELECT o.speed FROM s JOIN o ON s.device = o.device", RepairKind.REBUILD, None),
        (
            "SELECT state FROM s JOIN devices d ON s.device = d.device",
            RepairKind.REBUILD,
            "add it under a new name",
        ),
        (
            "SELECT count(*) AS n FROM (SELECT * FROM s UNION ALL SELECT * FROM o)",
            RepairKind.REBUILD,
            None,
        ),
        (f"SELECT count(*) AS n {PAIRED}", RepairKind.REPAIR, "`query rebuild` computes it again"),
    ],
)
def test_what_depends_on_all_before_is_computed_as_a_whole_or_refused_with_what_to_do(
    text: str, kind: RepairKind, sentence: str | None
) -> None:
    found = step(asked(kind=kind), 7, joined(text))
    assert found == Replace() if sentence is None else sentence in getattr(found, "detail", "")


@pytest.mark.parametrize(
    ("window", "begin"),
    [
        ("window(event_time, '1 minute')", T0),
        ("window(event_time, '3 minutes', '1 minute')", T0 - 2 * MINUTE),
        ("window(event_time, '90 seconds', '1 minute')", T0 - MINUTE),
        ("date_trunc('day', event_time)", T0 - T0 % (24 * 60 * MINUTE)),
    ],
)
def test_the_first_window_is_the_first_that_the_time_lies_in(window: str, begin: int) -> None:
    assert first_begin(query(window).query.window, T0 + 5) == begin


def row(key: str, n: int, **more: Any) -> dict[str, Any]:
    return {
        "query": "q",
        "window_start": T0,
        "window_end": T0 + MINUTE,
        "device": key,
        "n": n,
        "revision": 3,
        "final": True,
    } | more


def output(registered: Registered, value: dict[str, Any]) -> emit.Output:
    return emit.Output(
        registered.topic, value["device"].encode(), orjson.dumps(value | {"revision": 9})
    )


def test_only_rows_that_differ_are_told_with_a_revision_above_all_before() -> None:
    registered = query()
    told = {
        b"same": Row(row("same", 1, final=False)),
        b"other": Row(row("other", 1, revision=20)),
        b"partly": Row(row("partly", 1, complete=False)),
        b"withdrawn": Row({**row("withdrawn", 0), "withdrawn": True}),
        b"sketched": Row(row("sketched", 4), readings=2),
        b"gone": Row(row("gone", 1)),
    }
    names = ("same", "other", "partly", "withdrawn", "sketched", "new")
    computed = [
        output(registered, row(name, 1 if name in ("same", "partly") else 2)) for name in names
    ]
    found = changes(registered, told, computed, {name.encode(): 2 for name in names}, revision=9)
    revisions = {
        one.key.decode(): orjson.loads(one.value or b"")["revision"] for one in found.outputs
    }
    assert revisions == {"other": 21, "partly": 9, "withdrawn": 9, "new": 9}
    assert (found.added, found.changed, found.withdrawn, found.unchanged, found.unknown) == (
        1,
        3,
        0,
        2,
        1,
    )
    after = {
        one.key: Row(orjson.loads(one.value or b""), int(one.headers["readings"]))
        for one in found.outputs
    }
    assert (
        changes(
            registered, told | after, computed, {name.encode(): 2 for name in names}, revision=9
        ).outputs
        == []
    )


def test_rows_that_having_lets_through_no_more_are_withdrawn_once() -> None:
    registered = query(having="HAVING count(*) < 2")
    found = changes(registered, {b"a": Row(row("a", 1))}, [], {}, revision=9)
    (one,) = found.outputs
    assert (
        one.topic,
        orjson.loads(one.value or b"")["withdrawn"],
        orjson.loads(one.value or b"")["revision"],
    ) == (registered.topic, True, 9)
    assert (
        changes(registered, {b"a": Row(orjson.loads(one.value or b""))}, [], {}, revision=9).outputs
        == []
    )


def test_the_oldest_that_ended_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewake.cloud.ops.services.repairs.ROWS_MAX", 3)
    rows = {
        f"r{i}": asked(id=f"r{i}", asked_at=i, state=RepairState.DONE if i else RepairState.WAITING)
        for i in range(4)
    }
    assert oldest_ended(rows) == ["r1", "r2"]
    assert repair_rows.ROWS_MAX > repair_rows.OPEN_MAX
