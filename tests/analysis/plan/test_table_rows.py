"""Readings joined with a compacted topic of somebody else's, as of event time; what of it is no row
is said, and is no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson
import pytest
from confluent_kafka.admin import NewTopic

from edgewake.cloud.analysis.folds.enriched import Table
from edgewake.cloud.analysis.plan.table_rows import TableRecord
from edgewake.cloud.kafka import clients
from edgewake.cloud.queries.query import Join
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.registry import Registry, statuses
from edgewake.protocol import topics
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, NameKind, Stream
from edgewake.protocol.ops.query import QueryState, Registration
from tests.analysis.support import T0, Analysis, Feed, read, registered, results, truth, unique

STREAM = Stream(
    name="s",
    fields={"tariff": FieldInfo(type=FieldType.STRING), "kwh": FieldInfo(type=FieldType.NUMBER)},
)
DECLARED = "tariffs (price number, unit string) from erp.tariffs"
SELECT = "SELECT kwh * t.price AS cost, t.unit FROM s {left}JOIN tariffs t ON s.tariff = t.key"


def text(select: str = SELECT.format(left=""), foreign: str = DECLARED, more: str = "") -> str:
    return f"-- name: q\n-- foreign: {foreign}\n{more}{select}"


def test_its_columns_are_the_tables() -> None:
    join = parse(text(), {"s": STREAM}).join
    columns = (("key", FieldType.STRING), ("price", FieldType.NUMBER), ("unit", FieldType.STRING))
    assert join == Join(
        "tariffs", (("tariff", "key"),), is_left=False, columns=columns, foreign="erp.tariffs"
    )
    assert join.topic == "erp.tariffs"


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        (
            text(foreign="tariffs from erp.tariffs"),
            "expected e.g. `-- foreign: tariffs (price number",
        ),
        (text(foreign="Tariffs (price number) from t"), "is not a name of a table"),
        (text(foreign="tariffs (price number, price string) from t"), "1 to 64 different columns"),
        (
            text(foreign="tariffs (price money) from t"),
            "price 'money': expected number, string, boolean",
        ),
        (text(foreign="tariffs (key string) from t"), "'key' is not a name of a column"),
        (text(foreign="tariffs (price number) from ew.queries"), "a topic of Edgewake's own"),
        (
            text("SELECT o.price FROM s JOIN o ON s.tariff = o.key", "o (price number) from t"),
            "stream 'o' already",
        ),
        (
            text(
                foreign="devices (price number) from t",
                select="SELECT d.price FROM s JOIN devices d ON tariff = d.key",
            ),
            "'devices' already",
        ),
        (text("SELECT kwh FROM s"), "'tariffs' is not joined"),
        (
            text("SELECT t.price FROM s JOIN tariffs t ON s.tariff = t.unit"),
            "found by its key alone",
        ),
        (text("SELECT t.prise FROM s JOIN tariffs t ON s.tariff = t.key"), "did you mean"),
        (text("SELECT t.price FROM s JOIN tariffs t ON s.kwh = t.key"), "are of different types"),
        (text(more="-- table: device\n"), "header table: not with the foreign topic erp.tariffs"),
        (
            text(
                "SELECT t.price FROM s JOIN tariffs t ON s.tariff = t.key AND t.event_time "
                "BETWEEN s.event_time AND s.event_time"
            ),
            "was the latest at the reading's time",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_to_write(file: str, fault: str) -> None:
    with pytest.raises(QueryError, match=re.escape(fault)):
        parse(file, {"s": STREAM, "o": STREAM.model_copy(update={"name": "o"})})


def test_only_topics_that_the_operator_names_can_be_read() -> None:
    tables = Registry()
    tables.registrations["q"] = Registration(name="q", text=text(), registered_at=1)
    tables.on_stream(
        "s", STREAM.model_copy(update={"kind": NameKind.STREAM}).model_dump_json().encode()
    )
    refused = statuses(tables, {})["q"]
    assert (refused.state, "`foreign_topics` of analysis.toml" in refused.detail) == (
        QueryState.REFUSED,
        True,
    )
    assert statuses(tables, {}, foreign=("erp.tariffs",))["q"].state is QueryState.RUNNING


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (b"a", b'{"price": 2, "unit": "kWh", "more": []}', None),
        (b"a", b'{"unit": null}', None),
        (b"a", None, None),
        (None, b"{}", "it has no key"),
        (b"\xff", b"{}", "its key is not valid UTF-8"),
        (b"a", b"{", "its value is not JSON"),
        (b"a", b"[1]", "its value is not a JSON object"),
        (b"a", b'{"price": "2"}', "price is '2', expected a number"),
        (b"a", b'{"price": true}', "price is 'True', expected a number"),
    ],
)
def test_what_is_no_row_is_said_and_its_key_has_none_from_then_on(
    key: bytes | None, value: bytes | None, fault: str | None
) -> None:
    join = parse(text(), {"s": STREAM}).join
    assert join is not None
    table = Table(join)
    table.put(TableRecord("erp.tariffs", 0, 1, b"a", b'{"price": 1, "unit": "kWh"}', 10), None)
    table.put(TableRecord("erp.tariffs", 2, 7, key, value, 20), None)

    assert table.versions.at('["a"]', 19) == ["a", 1, "kWh"]
    is_of_key = key == b"a"
    body = orjson.loads(value) if value is not None and fault is None else None
    expected = None if body is None else ["a", body.get("price"), body.get("unit")]
    assert table.versions.at('["a"]', 20) == (expected if is_of_key else ["a", 1, "kWh"])
    said = (
        ""
        if fault is None
        else f"1 records of erp.tariffs are invalid, the last one: partition 2, offset 7: {fault}"
    )
    assert table.remark.partition(";")[0] == said

    again = Table(join)
    for name, dumped in table.dump().items():
        assert dumped is not None
        again.load(name, orjson.loads(dumped))
    assert (again.remark, again.versions.of) == (table.remark, table.versions.of)


@pytest.fixture
def tariffs(feed: Feed) -> Iterator[str]:
    """A topic of somebody else's."""
    name = f"erp.{unique('tariffs')}"
    client = clients.admin(feed.config)
    for future in client.create_topics(
        [NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})]
    ).values():
        future.result(30)
    yield name
    for future in client.delete_topics([name]).values():
        future.result(30)


def put(feed: Feed, topic: str, key: str, value: bytes | None, at: int) -> None:
    feed.producer.produce(topic, value, key, timestamp=at)
    feed.flush()


def test_readings_find_the_row_of_their_time_also_after_a_restart(
    analysis: Analysis, feed: Feed, tariffs: str
) -> None:
    body = (
        f"SELECT device, speed, t.price FROM {feed.name} LEFT JOIN tariffs t ON "
        f"{feed.name}.street = t.key"
    )
    file = f"-- name: {unique('costs')}\n-- foreign: tariffs (price number) from {tariffs}\n{body}"
    sums = (
        f"-- name: {unique('sums')}\n-- foreign: tariffs (price number) from {tariffs}\n-- "
        "lateness: 0 seconds\n-- reopen: 1 hour\n"
        + (
            f"SELECT street, sum(speed * price) AS cost FROM {feed.name} JOIN tariffs ON street = "
            "tariffs.key GROUP BY window(event_time, '1 minute'), street"
        )
    )
    queries = registered(file, sums, streams=[feed.stream])
    name, total = queries[0].query.name, queries[1].query.name
    put(feed, tariffs, "day", b'{"price": 1.0}', T0)
    put(feed, tariffs, "day", b'{"price": 2.0}', T0 + 10)
    put(feed, tariffs, "night", b'{"price": 3}', T0 + 10)
    put(feed, tariffs, "night", None, T0 + 20)
    put(feed, tariffs, "day", b'{"price": "dear"}', T0 + 30)
    times = [T0 - 1, T0, T0 + 9, T0 + 10, T0 + 29, T0 + 30]
    feed.send(times, speed=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], street=["day"] * 6)
    feed.send(
        [T0 + 10, T0 + 20, T0 + 21], speed=[7.0, 8.0, 9.0], street=["night", "night", "nobody's"]
    )
    # What comes now for the first minute comes late.
    feed.send([T0 + 180_000], speed=[12.0], street=["nobody's"])
    analysis.run(queries, feed)

    def prices() -> dict[float, float | None]:
        return {row["speed"]: row["price"] for row in results(feed.config, name)}

    before = {
        1.0: None,
        2.0: 1.0,
        3.0: 1.0,
        4.0: 2.0,
        5.0: 2.0,
        6.0: None,
        7.0: 3.0,
        8.0: None,
        9.0: None,
        12.0: None,
    }
    assert prices() == before
    detail = [
        row.value["detail"]
        for row in read(feed.config, topics.PROGRESS)
        if row.key == name.encode()
    ][-1]
    assert f"1 records of {tariffs} are invalid" in detail
    assert "price is 'dear', expected a number" in detail

    put(feed, tariffs, "day", b'{"price": 5.0}', T0 + 40)
    feed.send([T0 + 39, T0 + 40], speed=[10.0, 11.0], street=["day", "day"])
    analysis.run(queries, feed)
    assert prices() == before | {10.0: None, 11.0: 5.0}
    found = {
        place: row["cost"] for place, row in truth(results(feed.config, total), "street").items()
    }
    assert found == {(T0, "day"): 2.0 + 3.0 + 8.0 + 10.0 + 55.0, (T0, "night"): 21.0}


@pytest.mark.long
def test_a_topic_that_is_not_there_is_said(analysis: Analysis, feed: Feed, tariffs: str) -> None:
    (query,) = registered(
        f"-- name: {unique('q')}\n-- foreign: nowhere (price number) from {tariffs}.other\n"
        f"SELECT n.price FROM {feed.name} LEFT JOIN nowhere n ON {feed.name}.street = n.key",
        streams=[feed.stream],
    )
    feed.send([T0], speed=[1.0], street=["a"])
    analysis.run([query], feed)
    last = [
        row.value
        for row in read(feed.config, topics.PROGRESS)
        if row.key == query.query.name.encode()
    ][-1]
    assert last["detail"] == f"topic {tariffs}.other is not there, so its table has no rows"
