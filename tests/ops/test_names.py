"""Streams and queries have one name space, and an operator decides types, with two operations APIs
on a real Kafka.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from edgewake.cloud.kafka.clients import admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import topic_configs
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.ops.conftest import Writer
from tests.ops.service import Ops, running
from tests.ops.test_app import declare, eventually, sql
from tests.services import Kafka

ROUNDS = 8


@pytest.fixture(scope="module")
def two(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ops, Ops]]:
    """Two operations APIs on one Kafka."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("ops-one", "ops-other"))
    with (
        running(kafka.bootstrap, Path(one)) as first,
        running(kafka.bootstrap, Path(other)) as second,
    ):
        yield first, second


def register(ops: Ops, text: str) -> tuple[int, dict[str, object]]:
    answer = ops.client.post("/v1/queries", json={"text": text})
    return answer.status_code, answer.json()


def test_of_two_processes_that_register_one_name_at_once_only_one_succeeds(
    two: tuple[Ops, Ops], writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    for ops in two:
        eventually(lambda ops=ops: ops.client.get(f"/v1/streams/{stream}"), bool)
    for _ in range(ROUNDS):
        name = unique("q")
        texts = [sql(name, stream), sql(name, stream).replace("10 seconds", "20 seconds")]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(register, two, texts))
        assert sorted(status for status, _ in answers) == [201, 409], answers
        (winner,) = [i for i, (status, _) in enumerate(answers) if status == 201]
        found = eventually(partial(two[1 - winner].client.get, f"/v1/queries/{name}"), bool)
        assert found["text"] == texts[winner]


def test_a_query_registered_anew_has_a_topic_of_its_own_and_the_name_is_free_between(
    two: tuple[Ops, Ops], writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, name = unique("s"), unique("q")
    declare(writer, stream)
    eventually(lambda: two[0].client.get(f"/v1/streams/{stream}"), bool)
    _, first = register(two[0], sql(name, stream))
    assert two[0].client.delete(f"/v1/queries/{name}").status_code == 204
    status, second = register(two[0], sql(name, stream))
    assert status == 201
    assert first["topic"] != second["topic"]
    assert two[0].client.delete(f"/v1/queries/{name}").status_code == 204
    declare(writer, name)
    assert eventually(lambda: two[0].client.get(f"/v1/streams/{name}"), bool)["name"] == name


def test_a_name_that_a_query_has_does_not_become_a_stream(
    two: tuple[Ops, Ops], writer: Writer, unique: Callable[[str], str]
) -> None:
    """A bridge's row that comes second changes nothing; the one that comes first keeps the query
    out, also when the API has not read it.
    """
    stream, name = unique("s"), unique("q")
    declare(writer, stream)
    eventually(lambda: two[0].client.get(f"/v1/streams/{stream}"), bool)
    assert register(two[0], sql(name, stream))[0] == 201
    declare(writer, name)
    later = unique("later")
    declare(writer, later)
    # So the row before it was read, too.
    eventually(lambda: two[0].client.get(f"/v1/streams/{later}"), bool)
    assert two[0].client.get(f"/v1/streams/{name}").status_code == 404
    assert two[0].client.get(f"/v1/queries/{name}").status_code == 200
    status, problem = register(two[0], sql(later, stream))
    assert (status, problem["title"]) == (409, "name taken")


def test_a_name_of_the_systems_is_refused(
    two: tuple[Ops, Ops], writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: two[0].client.get(f"/v1/streams/{stream}"), bool)
    status, problem = register(two[0], sql("part_status", stream))
    assert status == 409, problem
    assert "reserved for the system" in str(problem["detail"])


def test_an_operator_decides_a_fields_type_and_unit(
    two: tuple[Ops, Ops], writer: Writer, unique: Callable[[str], str]
) -> None:
    name = unique("s")
    row = Stream(
        name=name,
        fields={
            "speed": FieldInfo(type=FieldType.STRING, first_device="liar"),
            "other": FieldInfo(type=FieldType.NUMBER),
        },
    )
    writer.put(topics.STREAMS, name, row.model_dump_json().encode())
    client = two[0].client
    eventually(lambda: client.get(f"/v1/streams/{name}"), bool)
    answer = client.patch(
        f"/v1/streams/{name}",
        json={"description": "cars", "fields": {"speed": {"type": "number", "unit": "km/h"}}},
    )
    assert answer.status_code == 200, answer.text
    speed = answer.json()["fields"]["speed"]
    assert (speed["type"], speed["unit"], speed["revision"], speed["first_device"]) == (
        "number",
        "km/h",
        1,
        "liar",
    )
    assert speed["changed_at"] > 1_700_000_000_000
    assert answer.json()["description"] == "cars"
    assert answer.json()["fields"]["other"]["revision"] == 0
    there = eventually(
        lambda: two[1].client.get(f"/v1/streams/{name}"),
        lambda found: found["description"] == "cars",
    )
    assert there["fields"] == answer.json()["fields"]
    # What a bridge learnt of before does not come back.
    writer.put(topics.STREAMS, name, row.model_dump_json().encode())
    again = client.patch(f"/v1/streams/{name}", json={"fields": {"other": {"unit": "kg"}}}).json()
    assert again["fields"]["speed"]["type"] == "number"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"fields": {"new": {"unit": "kg"}}}, 422),
        ({"fields": {"device": {"type": "number"}}}, 422),
        ({"fields": {"a b": {"type": "number"}}}, 422),
        ({"fields": {"speed": {"type": "date"}}}, 422),
        ({"fields": {"speed": {"typ": "number"}}}, 422),
        ({"fields": {"new": {"type": "number"}}}, 200),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(
    two: tuple[Ops, Ops],
    writer: Writer,
    unique: Callable[[str], str],
    body: dict[str, object],
    status: int,
) -> None:
    name = unique("s")
    declare(writer, name)
    eventually(lambda: two[0].client.get(f"/v1/streams/{name}"), bool)
    answer = two[0].client.patch(f"/v1/streams/{name}", json=body)
    assert answer.status_code == status, answer.text


def test_of_a_stream_that_nobody_knows_nothing_is_changed(two: tuple[Ops, Ops]) -> None:
    assert two[0].client.patch("/v1/streams/nobody_knows_it", json={}).status_code == 404


def test_an_operator_decides_how_long_a_stream_is_kept(
    two: tuple[Ops, Ops], kafka: Kafka, writer: Writer, unique: Callable[[str], str]
) -> None:
    name, client = unique("s"), two[0].client
    declare(writer, name)
    before = eventually(lambda: client.get(f"/v1/streams/{name}"), bool)
    path = f"/v1/streams/{name}/retention"
    found = client.get(path).json()
    kept = {"retention_ms": 3 * 86_400_000, "retention_bytes": 64 << 20}
    assert found["kept_ms"] != kept["retention_ms"]
    answer = client.patch(f"/v1/streams/{name}", json=kept)
    assert answer.status_code == 200, answer.text
    assert answer.json()["fields"] == before["fields"]
    there = eventually(
        lambda: two[1].client.get(path), lambda one: one["kept_ms"] == kept["retention_ms"]
    )
    assert (there["bytes_max"], there["default_ms"]) == (64 << 20, found["default_ms"])
    settings = topic_configs(
        admin(KafkaConfig(bootstrap=kafka.bootstrap)), topics.stream_topic(name)
    )
    assert (settings["retention.ms"], settings["segment.ms"]) == ("259200000", "32400000")
    assert client.patch(f"/v1/streams/{name}", json={"retention_ms": 1}).status_code == 422
    assert client.get("/v1/streams/nobody_knows_it/retention").status_code == 404
    row = Stream(name=f"{name}_empty", fields={})
    writer.put(topics.STREAMS, row.name, row.model_dump_json().encode())
    eventually(lambda: client.get(f"/v1/streams/{row.name}"), bool)
    unmade = client.get(f"/v1/streams/{row.name}/retention")
    assert (unmade.status_code, "comes with the first reading" in unmade.text) == (404, True)
    # A change is done whole or not at all, whichever half is refused.
    both = {"description": "Half of it", "retention_ms": 4 * 86_400_000}
    assert client.patch(f"/v1/streams/{row.name}", json=both).status_code == 404
    assert client.get(f"/v1/streams/{row.name}").json()["description"] == ""
    unknown = both | {"fields": {"nobody_sent_it": {"unit": "m"}}}
    assert client.patch(f"/v1/streams/{name}", json=unknown).status_code == 422
    assert client.get(path).json()["kept_ms"] == kept["retention_ms"]
    answer = client.patch(f"/v1/streams/{name}", json=both)
    assert (answer.status_code, answer.json()["description"]) == (200, "Half of it"), answer.text
    assert client.get(path).json()["kept_ms"] == both["retention_ms"]
