"""Kafka's records as columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Any

import orjson
import pytest

from edgewake.cloud.lake import pending
from edgewake.cloud.lake.gather import Foreign, Gathered
from edgewake.cloud.lake.shape import BASE, ColumnType, Kind
from edgewake.cloud.lake.sources import Source
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.corrected_time import AHEAD_MS_MAX
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode

T = 1_790_000_000_000


def record(
    fields: dict[str, list[Any]],
    *,
    shift: int = 0,
    sent_at: int | None = None,
    kept_at: int | None = None,
    via: str = "",
) -> bytes:
    count = len(next(iter(fields.values())))
    body = encode(Frame(1, 1, 7, [T + i for i in range(count)], fields))
    value = records.encode(
        device="car-1",
        stream="s",
        mode=Mode.ACK,
        sent_at=sent_at,
        received_at=T + 9,
        frame_bytes=body,
        via=via,
    )
    return records.with_clocks(value, shift=shift, kept_at=kept_at)


def gathered(*values: bytes, kind: Kind = Kind.STREAM) -> Gathered:
    found = Gathered(kind)
    for offset, value in enumerate(values):
        found.add(value, key=b"key", partition=2, offset=offset)
    return found


def columns(found: Gathered, table: int = 0) -> dict[str, list[Any]]:
    return found.tables[table].table().to_pydict()


def test_a_row_says_by_which_gateway_it_came_and_only_where_one_brought_some() -> None:
    own, of_thing = record({"n": [1, 2]}), record({"n": [3]}, via="gw-1")
    assert "via" not in columns(gathered(own))
    found = gathered(own, of_thing, own)
    assert len(found.tables) == 1
    assert columns(found)["via"] == [None, None, "gw-1", None, None]
    assert found.tables[0].fields["via"] is ColumnType.STRING


def test_rows_have_the_readings_and_where_they_stand_in_kafka() -> None:
    found = columns(gathered(record({"n": [1, 2.5]}, shift=-1000)))
    assert (found["device"], found["seq"], found["n"]) == (["car-1"] * 2, [7, 8], [1.0, 2.5])
    assert [t.timestamp() * 1000 for t in found["t"]] != []
    assert (found["@partition"], found["@offset"]) == ([2, 2], [0, 0])
    assert (found["t"][1] - found["t"][0]).total_seconds() == 0.001
    assert (found["received_at"][0] - found["t"][0]).total_seconds() == 1.009


def test_times_are_by_clocks_that_are_right() -> None:
    """The device is an hour ahead, of the second record the bridge, too, and the third device does
    not say when it sent.
    """
    hour = 3_600_000
    found = columns(
        gathered(
            record({"n": [1]}, shift=-hour, sent_at=T + hour + 5),
            record({"n": [1]}, shift=-hour, sent_at=T + hour + 5, kept_at=T - hour),
            record({"n": [1]}, shift=-hour),
        )
    )
    times = {name: found[name] for name in ("received_at", "sent_at")}
    ms = {
        name: [at and round(at.replace(tzinfo=UTC).timestamp() * 1000) - T for at in of_one]
        for name, of_one in times.items()
    }
    assert ms == {"received_at": [9, -hour, 9], "sent_at": [5, -hour, None]}


def test_a_clock_a_day_ahead_that_nobody_knows_of_shows_no_tomorrow() -> None:
    """A plain device does not say when it sends, so nobody finds out; queries believe it for five
    minutes, and so does SQL.
    """
    day = 86_400_000
    found = columns(gathered(record({"n": [1, 2]}, kept_at=T - day), record({"n": [1, 2]})))
    ms = [round(at.replace(tzinfo=UTC).timestamp() * 1000) - T for at in found["t"]]
    assert ms == [AHEAD_MS_MAX - day, AHEAD_MS_MAX - day, 0, 1]


def test_a_field_that_comes_and_goes_is_null_meanwhile() -> None:
    found = columns(
        gathered(
            record({"a": [1]}),
            record({"b": ["x"]}),
            record({"a": [None]}),
            record({"a": [2], "b": ["y"]}),
        )
    )
    assert (found["a"], found["b"]) == ([1.0, None, None, 2.0], [None, "x", None, "y"])


def test_another_type_begins_a_table_of_its_own() -> None:
    found = gathered(record({"a": [1]}), record({"a": ["x"]}), record({"a": [2]}))
    assert [columns(found, table)["a"] for table in (0, 1)] == [[1.0, 2.0], ["x"]]


def test_a_whole_number_that_is_no_float_becomes_the_nearest_one() -> None:
    assert columns(gathered(record({"a": [2**53 + 1, 0.5]})))["a"] == [2.0**53, 0.5]


def test_a_list_in_a_result_is_json() -> None:
    row = {
        "query": "q",
        "window_start": T,
        "window_end": T + 1,
        "device": "d",
        "top": [{"item": "x"}],
        "revision": 3,
        "final": True,
    }
    found = gathered(orjson.dumps(row), kind=Kind.QUERY)
    assert found.tables[0].fields == {"device": ColumnType.STRING, "top": ColumnType.JSON}
    assert columns(found)["top"] == ['[{"item":"x"}]']
    assert columns(found)["@key"] == ["key"]


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b'"x"', record({"n": [1]}).replace(b'"n":[1]', b'"n":[1,2]'), b"\xff"],
)
def test_what_none_of_our_parts_wrote_is_foreign(value: bytes) -> None:
    with pytest.raises(Foreign):
        gathered(value)


def test_what_waits_to_be_written_is_bounded_by_rows_bytes_and_the_cells_of_its_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source("ew.s.s", Kind.STREAM, "s")

    def records_until_full(fields: Callable[[int], dict[str, list[Any]]], **bounds: int) -> int:
        with monkeypatch.context() as patch:
            for name, bound in bounds.items():
                patch.setattr(pending, name, bound)
            waiting = pending.Pending()
            while not waiting.is_full:
                waiting.add(
                    source,
                    "2026-11-22",
                    record(fields(waiting.rows)),
                    key=b"key",
                    partition=0,
                    offset=waiting.rows,
                )
            assert sum(rows.table().num_rows for _, _, rows in waiting) == waiting.rows
            return waiting.rows

    base = len(BASE[Kind.STREAM])
    assert records_until_full(lambda _: {"a": [1]}, ROWS_MAX=50) == 50
    assert (
        records_until_full(
            lambda _: {"a": ["x" * 1000]}, BYTES_MAX=10 * len(record({"a": ["x" * 1000]}))
        )
        == 10
    )
    assert records_until_full(lambda _: {"a": [1]}, CELLS_MAX=20 * (base + 1)) == 20
    assert records_until_full(lambda row: {f"f{row}": [1]}, CELLS_MAX=20 * (base + 20)) == 20, (
        "a field in each: a square of them"
    )
