"""The examples of docs/final.md, and the one of docs/lake.md that asks for what is final, run on
Kafka, Spark and DuckDB.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from edgewake.cloud.lake.asking import Asking
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import (
    Analysis,
    Feed,
    catch_up,
    registered,
    results,
    truth,
    unique,
    watermarks,
)

ROOT = Path(__file__).parents[2]
MINUTE = 60_000
HOUR = 60 * MINUTE
T0 = 1_790_002_800_000
"""The beginning of an hour."""


def examples(feed: Feed) -> Mapping[str, Registered]:
    """The queries of the page under names of their own, over the feed's stream."""
    texts = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/final.md").read_text("utf-8"), re.DOTALL)
    names = [re.findall(r"-- name: (\w+)", text)[0] for text in texts]
    assert names == ["overload", "hourly_bill", "power_now"]
    files = [
        text.replace(f"-- name: {name}\n", f"-- name: {unique('q')}\n").replace(
            "FROM meter_reading ", f"FROM {feed.name} "
        )
        for name, text in zip(names, texts, strict=True)
    ]
    return dict(zip(names, registered(*files, streams=[feed.stream]), strict=True))


def ask(feed: Feed, folder: Path, of: Registered, sql: str) -> list[list[Any]]:
    """The answer of SQL, with the watermark as the operations API knows it."""
    question = {"sql": sql, "rows": 1000, "seconds": 60.0}
    passed = {of.topic: watermarks(feed.config, of.query.name)[-1]}
    found: list[list[Any]] = orjson.loads(
        asyncio.run(Asking(folder, feed.config).ask(question, passed))
    )["rows"]
    return found


def send(feed: Feed, minute: int, power_kw: float) -> None:
    for device in ("meter-1", "meter-2"):
        feed.send(
            [T0 + minute * MINUTE], device=device, partition=0, power_kw=[power_kw], kwh=[0.25]
        )


def test_an_alert_a_bill_and_a_chart_are_told_as_the_page_says(
    analysis: Analysis, new_feed: Callable[[Mapping[str, FieldType]], Feed], tmp_path: Path
) -> None:
    feed = new_feed({"power_kw": FieldType.NUMBER, "kwh": FieldType.NUMBER})
    of = examples(feed)

    def told(name: str) -> list[dict[str, Any]]:
        return results(feed.config, of[name].query.name)

    with analysis.running(list(of.values()), feed) as lane:
        for minute in range(5):
            send(feed, minute, 1.0)
        catch_up(lane, feed)
        assert told("overload") == []
        send(feed, 5, 11.5)
        catch_up(lane, feed)
        alerts = told("overload")
        assert sorted(
            (row["device"], row["window_start"], row["highest"], row["final"]) for row in alerts
        ) == [
            ("meter-1", T0, 11.5, False),
            ("meter-2", T0, 11.5, False),
        ], "while the window is open"
        for minute in range(6, 75):
            send(feed, minute, 1.0)
        catch_up(lane, feed)
        send(feed, 75, 1.0)
        catch_up(lane, feed)

    bills = told("hourly_bill")
    assert sorted(
        (row["device"], row["window_start"], row["kwh"], row["readings"], row["final"])
        for row in bills
    ) == [
        ("meter-1", T0, 15.0, 60, True),
        ("meter-2", T0, 15.0, 60, True),
    ], "once, when the hour is final"

    chart = told("power_now")
    latest = truth(chart)
    assert latest[T0 + 4 * MINUTE,]["final"] is False, (
        "a row is not told again when its window becomes final"
    )
    assert [row["readings"] for row in latest.values()] == [2] * 76
    passed = watermarks(feed.config, of["power_now"].query.name)[-1]
    name = of["power_now"].query.name
    (example,) = re.findall(
        r'"(SELECT window_start, mean FROM host_minute WHERE final[^"]*)"',
        (ROOT / "docs/lake.md").read_text("utf-8"),
    )
    rows = ask(feed, tmp_path / "lake", of["power_now"], example.replace("host_minute", name))
    assert len(rows) == 10, "the ten latest of those that are final"
    ((count, last),) = ask(
        feed,
        tmp_path / "lake",
        of["power_now"],
        f"SELECT count(*), epoch_ms(max(window_end)) FROM {name} WHERE final",
    )
    assert (count, last) == (74, passed)
    ((everything,),) = ask(
        feed, tmp_path / "lake", of["power_now"], f"SELECT count(*) FROM {name} WHERE NOT final"
    )
    assert everything == 76 - 74
