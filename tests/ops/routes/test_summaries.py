"""Summaries through a running operations API: from the topics of analysis and devices to answers,
by HTTP and in the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from edgewake.cloud.summaries.summary import HOUR_MS, MINUTE_MS, Record, Series
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.frame import encode, from_plain
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.sketches import sketch
from edgewake.protocol.sketches.sketch import DeviceSketch, Numbers, SketchKind
from tests.commands.test_status import printed, run
from tests.ops.conftest import Writer
from tests.ops.service import Ops
from tests.ops.test_app import eventually
from tests.services import wait_until
from tests.summaries.made import minute, summary

HOUR = 1_790_000_000_000 // HOUR_MS * HOUR_MS


def minutes(writer: Writer, stream: str, field: str = "price", *, first: int = 0) -> None:
    """An hour of minutes, each with three prices."""
    for i in range(60):
        record = minute(
            HOUR + i * MINUTE_MS, [float(first + i), float(first + i), 1.5], Series(stream, field)
        )
        writer.producer.produce(topics.MINUTES, record.encode(), record.key)
    assert writer.producer.flush(10) == 0


def by_device(writer: Writer, stream: str, kind: SketchKind, data: bytes, readings: int) -> None:
    """As the sequencer passes it on."""
    fields = DeviceSketch(stream, "price", kind, HOUR, HOUR + HOUR_MS, readings, data).fields()
    frame = encode(from_plain(orjson.dumps({"t": HOUR, **fields}), received_at=HOUR))
    value = records.encode(
        device="box-1",
        stream=sketch.STREAM,
        mode=Mode.ACK,
        sent_at=None,
        received_at=HOUR,
        frame_bytes=frame,
    )
    writer.put(topics.stream_topic(sketch.STREAM), "box-1", value)


def asked(ops: Ops, stream: str, readings: int, **params: Any) -> Any:
    """The only row, once it has so many readings."""
    found = eventually(
        lambda: ops.client.get(
            f"/v1/summaries/{stream}/price", params={"from": HOUR, "to": HOUR + HOUR_MS, **params}
        ),
        lambda body: sum(row["figures"]["readings"] for row in body["rows"]) == readings,
    )
    return found["rows"]


def test_a_field_is_asked_with_bounds_and_confidence(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    minutes(writer, stream)
    (row,) = asked(
        ops,
        stream,
        180,
        distinct=True,
        quantile=[0, 0.5, 1],
        low=10,
        high=20,
        frequent=1,
        count_of="7",
        contains=["7", "99"],
    )
    assert row["figures"] | {"variance": 0} == {
        "readings": 180, "count": 180, "sum": 3630.0, "min": 0.0, "max": 59.0,
        "mean": pytest.approx(3630 / 180), "variance": 0,
    }  # fmt: skip
    assert row["distinct"] == {"value": 61, "low": 61, "high": 61, "confidence": 1, "seen": 180}
    assert [(one["rank"], one["value"], one["confidence"]) for one in row["quantiles"]] == [
        (0, 0, 1),
        (0.5, 14, 1),
        (1, 59, 1),
    ]
    assert (row["between"]["value"], row["frequent"][0]["text"], row["frequent"][0]["value"]) == (
        20,
        "1.5",
        60,
    )
    assert row["occurrences"][0]["low"] <= 2 <= row["occurrences"][0]["high"]
    assert [(one["text"], one["value"]) for one in row["contains"]] == [("7", True), ("99", False)]
    assert len(asked(ops, stream, 180, step="minute")) == 60
    assert len(asked(ops, stream, 180, step="hour", sample=3)[0]["sample"]) == 3
    (shown,) = printed(
        ops,
        "summary",
        stream,
        "price",
        "--from",
        str(HOUR),
        "--to",
        str(HOUR + HOUR_MS),
        "--distinct",
    )["rows"]
    assert shown["distinct"]["value"] == 61
    table = run(
        ops,
        "summary",
        stream,
        "price",
        "--from",
        str(HOUR),
        "--to",
        str(HOUR + HOUR_MS),
        "--quantile",
        "0.5",
        "--table",
    ).stdout
    assert "p50" in table
    assert {"stream": stream, "field": "price", "devices": ""} in printed(ops, "summary", stream)


def test_two_fields_are_compared(ops: Ops, writer: Writer, unique: Callable[[str], str]) -> None:
    stream = unique("s")
    minutes(writer, stream)
    minutes(writer, stream, "offer", first=30)
    wait_until(lambda: len(printed(ops, "summary", stream)) == 2, "both fields are known")
    asked(ops, stream, 180)
    between = ("--from", str(HOUR), "--to", str(HOUR + HOUR_MS))
    found: dict[str, Any] = {}

    def compared() -> bool:
        found.update(printed(ops, "summary", stream, "price", *between, "--with-field", "offer"))
        return bool(found["union"] and found["union"]["value"] == 91)

    wait_until(compared, "all minutes of both are read")
    assert (found["intersection"]["value"], found["difference"]["value"]) == (31, 30)
    assert found["inner_product"]["low"] <= 3600 + 30 * 4 <= found["inner_product"]["high"]


def test_sketches_of_devices_join_and_wrong_ones_become_dead_letters(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    minutes(writer, stream)
    prices = [float(i) for i in range(100)]
    for kind, one in summary(prices, narrow=True).sketches.items():
        by_device(writer, stream, kind, one.data, 100)
        by_device(writer, stream, kind, one.data, 100)
    by_device(writer, stream, SketchKind.NUMBERS, Numbers.of(prices).encode(), 100)
    by_device(writer, stream, SketchKind.KLL, b"\x05" * 40, 100)
    (row,) = asked(ops, stream, 280, distinct=True, quantile=1)
    row = wait_for_all(ops, stream)
    assert (row["figures"]["max"], row["distinct"]["value"], row["quantiles"][0]["value"]) == (
        99,
        101,
        99,
    )
    letters = eventually(
        lambda: ops.client.get("/v1/dead-letters", params={"device": "box-1"}),
        lambda body: any("kll" in letter["detail"] for letter in body["items"]),
    )
    assert letters["items"][0]["part"] == "summaries"


def wait_for_all(ops: Ops, stream: str) -> Any:
    """The row once every sketch has seen every reading."""
    rows: list[Any] = []

    def seen() -> bool:
        rows[:] = asked(ops, stream, 280, distinct=True, quantile=1)
        row = rows[0]
        return (
            row["figures"]["count"] == 280
            and row["distinct"]["seen"] == 280
            and row["quantiles"][0]["seen"] == 280
        )

    wait_until(seen, "all sketches of the device are there")
    return rows[0]


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/v1/summaries/nobody/nothing", {}, 404),
        (
            "/v1/summaries/nobody/nothing",
            {"from": 0, "to": 4_000_000_000_000, "step": "minute"},
            422,
        ),
        ("/v1/summaries/nobody/nothing", {"quantile": 2}, 422),
        ("/v1/summaries/nobody/nothing/compare", {"from": 0, "to": 1}, 404),
    ],
)
def test_what_cannot_be_answered_is_said(
    ops: Ops, path: str, params: dict[str, Any], status: int
) -> None:
    assert ops.client.get(path, params=params).status_code == status


def test_a_record_that_is_none_stops_nobody(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    writer.put(topics.MINUTES, "x", b"no summary")
    minutes(writer, stream)
    asked(ops, stream, 180)
    assert isinstance(Record.decode(minute(HOUR, [1.0]).encode()), Record)
