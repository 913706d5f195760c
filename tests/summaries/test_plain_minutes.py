"""Minutes from columns say what gather makes of them, and leave to it what is not one row of the
cloud's.
"""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.cloud.summaries import gather, plain_minutes, store
from edgewake.cloud.summaries.asking import Asked, Row, answered
from edgewake.cloud.summaries.intake import taken
from edgewake.cloud.summaries.store import Reads, Store, TooMuch, View
from edgewake.cloud.summaries.summary import DAY_MS, MINUTE_MS, Record, Step, Summary
from edgewake.protocol.errors import Rejected
from edgewake.protocol.sketches.sketch import DeviceSketch, Numbers, SketchKind
from tests.summaries.made import SERIES, minute, summary

MIDNIGHT = 1_790_000_000_000 // DAY_MS * DAY_MS
VALUES: tuple[list[float | str], ...] = (
    [1.5],
    [1.0, 2.0, 4.0],
    ["a", "b"],
    ["a", 7.0],
    [-0.0],
    [1e308, 1e308],  # a sum that no double holds
    [-1.7e308, 1.7e308],
)


def at(i: int) -> int:
    return MIDNIGHT + i * MINUTE_MS


def keep(path: Path, records: list[Record]) -> None:
    kept = Store(path)
    kept.keep([(Step.MINUTE, record) for record in records], {}, now_ms=at(60))
    kept.close()


def slow(view: View) -> list[Any]:
    rows = gather.by_step(view, SERIES, Step.MINUTE, MIDNIGHT, at(60), ())
    return [
        orjson.loads(answered(start, start + MINUTE_MS, found, Asked()).model_dump_json())
        for start, found in rows.items()
    ]


def fast(view: View) -> Any:
    rows = plain_minutes.rows(view, SERIES, MIDNIGHT, at(60))
    return None if rows is None else orjson.loads(orjson.dumps(rows))


def test_each_minute_has_the_figures_that_gather_gives(tmp_path: Path) -> None:
    boundless = Record(
        SERIES, at(50), at(51), Summary(3, Numbers(2, math.nan, math.nan, math.inf, 1.0, 2.0))
    )
    keep(
        tmp_path / "s.db",
        [
            *(minute(at(2 * i), values) for i, values in enumerate(VALUES)),
            minute(at(60), [9.0]),
            boundless,
        ],
    )
    reads = Reads(tmp_path / "s.db")
    found = reads.with_view(fast)
    assert found == reads.with_view(slow)
    assert [row["start"] for row in found] == [*(at(2 * i) for i in range(len(VALUES))), at(50)]
    assert [Row.model_validate(row).figures.readings for row in found] == [*map(len, VALUES), 3]


def test_minutes_with_other_rows_are_left_to_gather(tmp_path: Path) -> None:
    sketch = DeviceSketch(
        "shop",
        "price",
        SketchKind.HLL,
        at(1),
        at(2),
        5,
        summary([1.0]).sketches[SketchKind.HLL].data,
    )
    ((_, of_device),) = taken({"device": "box-1", "received_at": at(2), **sketch.fields()})
    reads = Reads(tmp_path / "s.db")
    keep(tmp_path / "s.db", [minute(at(0), [1.0])])
    assert len(reads.with_view(fast)) == 1, "a control: this one is plain"
    keep(tmp_path / "s.db", [of_device])
    assert reads.with_view(fast) is None
    assert len(reads.with_view(slow)) == 2


def test_bytes_that_are_no_numbers_are_left_to_gather_which_says_so(tmp_path: Path) -> None:
    keep(tmp_path / "s.db", [minute(at(0), [1.0]), minute(at(1), [1.0])])
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("UPDATE summary SET numbers = x'00' WHERE start = ?", (at(1),))
    db.close()
    assert Reads(tmp_path / "s.db").with_view(fast) is None
    with pytest.raises(Rejected, match="numbers: expected 48 bytes, found 1"):
        Reads(tmp_path / "s.db").with_view(slow)


def test_more_minutes_than_a_question_may_read_are_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROWS_MAX", 1)
    keep(tmp_path / "s.db", [minute(at(0), [1.0]), minute(at(1), [1.0])])
    with pytest.raises(TooMuch, match="more than 1 summaries"):
        Reads(tmp_path / "s.db").with_view(fast)
