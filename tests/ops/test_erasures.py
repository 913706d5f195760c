"""Erasures: afterwards nothing of it is in Kafka, in the store of summaries or in the files of the
lake, and all of the others' is; whatever is killed in the middle.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow.dataset as ds
import pytest
import pytest_asyncio
from confluent_kafka import KafkaError, Message, TopicPartition
from playwright.async_api import expect

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import partition_counts
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.summaries.summary import HOUR_MS, MINUTE_MS, Record, Series
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.sequence import POSITION_KEY, Position, encode_positions
from edgewake.protocol.ops.erasure import Erasure
from tests.chromium import chromium, open_page
from tests.commands.test_status import run
from tests.feeds import Feed
from tests.ops.conftest import T0, Writer
from tests.ops.screens.test_data import holds_in_both_themes_and_on_a_phone
from tests.ops.service import Ops, running
from tests.ops.test_app import declare, eventually, sql
from tests.services import STAYS, Kafka, Process, part, run_kafka, wait_until
from tests.summaries.made import summary

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
SETTLE = "erase_settle_s = 1\n"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Its own: another operations server would take an erasure over, and settle longer."""
    with run_kafka(tmp_path_factory.mktemp("erasures-kafka"), *STAYS) as service:
        yield service


@dataclass
class World:
    """Two streams of two devices, with all that is made of them."""

    config: KafkaConfig
    folder: Path
    writer: Writer
    gone: Feed
    kept: Feed
    query: str

    def fill(self) -> None:
        """Readings, records on their way, letters and summaries of both."""
        for feed in (self.gone, self.kept):
            declare(self.writer, feed.name)
            for device in ("dev-1", "dev-2"):
                feed.send(device, 3)
            token = self.writer.received("dev-1", feed.name, 1)
            shard = topics.shard_of(token.partition)
            at = encode_positions({token.partition: Position(token.offset + 1, token.offset + 1)})
            self.writer.put(topics.SEQUENCE, POSITION_KEY, at, partition=shard)
            letter = DeadLetter(reason=RejectReason.JSON, detail="why",
                topic=topics.up("dev-1", feed.name), part="bridge-1", received_at=T0)  # fmt: skip
            self.writer.put(topics.DEAD, "dev-1", feed.name.encode(), letter.headers())
            self.summaries(feed.name)
        # Of others, after all of it: no cut may reach it.
        self.kept.send("dev-2", 2)

    def summaries(self, stream: str) -> None:
        """What devices made of it."""
        series, made = Series(stream, "n"), summary([1.0, 2.0])
        minute, hour = T0 - T0 % MINUTE_MS, T0 - T0 % HOUR_MS
        for device in ("dev-1", "dev-2"):
            maker = f"{device}|{minute + MINUTE_MS}|kll"
            for topic, start, end in (
                (topics.MINUTES, minute, minute + MINUTE_MS),
                (topics.HOURS, hour, hour + HOUR_MS),
            ):
                one = Record(series, start, end, made, maker)
                self.writer.put(topic, one.key.decode(), one.encode())

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def lake_writer(self) -> Process:
        """`edgewake lake`, not started."""
        names = [self.gone.name, self.kept.name, self.query, "summaries.hour"]
        path = self.folder / "lake.toml"
        path.write_text(
            f'data_dir = "{self.lake}"\nevery_s = 0.2\nonly = {orjson.dumps(names).decode()}\n'
            f'[kafka]\nbootstrap = "{self.config.bootstrap}"\n'
        )
        return part("lake", path, self.folder / "lake.log")

    def in_lake(self, column: str, value: str, kind: str = "") -> int:
        """Rows in all files on the disk, named or not."""
        found = 0
        for path in self.lake.glob(f"{kind}*/date=*/*.parquet"):
            table = ds.dataset(path).to_table()
            if column in table.column_names:
                found += table[column].to_pylist().count(value)
        return found

    def in_store(self, stream: str) -> int:
        """Series of a stream in the store of summaries."""
        with closing(sqlite3.connect(self.folder / "data" / "summaries.db")) as db:
            asked = "SELECT count(*) FROM series WHERE stream = ?"
            return int(db.execute(asked, (stream,)).fetchone()[0])

    def on_kafka(self, topic: str) -> list[Message]:
        """Every record that Kafka still gives."""
        settings: dict[str, Any] = {"enable.partition.eof": True}
        consumer = clients.consumer(self.config, "test-erased", **settings)
        found: list[Message] = []
        for number in range(partition_counts(consumer).get(topic, 0)):
            low, high = watermarks(consumer, topic, number)
            consumer.assign([TopicPartition(topic, number, low)])
            while low < high:
                message = consumer.poll(10)
                assert message is not None
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    break
                found.append(message)
        consumer.close()
        return found

    def table(self, topic: str) -> dict[bytes, bytes]:
        """A compacted topic as its readers have it."""
        rows: dict[bytes, bytes | None] = {}
        for message in self.on_kafka(topic):
            rows[message.key() or b""] = message.value()
        return {key: value for key, value in rows.items() if value is not None}

    def mentions(self, topics_: Iterable[str], text: str) -> dict[str, int]:
        """Records by topic in whose key, value or headers the text occurs."""
        found: dict[str, int] = {}
        for topic in topics_:
            records = self.on_kafka(topic)
            count = sum(
                text.encode() in b"".join(
                    [one.key() or b"", one.value() or b""]
                    + [value or b"" for _, value in one.headers() or ()]
                )
                for one in records
            )  # fmt: skip
            found |= {topic: count} if count else {}
        return found


@pytest.fixture
def world(
    kafka_config: KafkaConfig, writer: Writer, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[World]:
    feeds = Feed(kafka_config), Feed(kafka_config)
    yield World(kafka_config, tmp_path, writer, *feeds, query=unique("q"))
    for feed in feeds:
        feed.close()


def finished(ops: Ops, row: dict[str, Any]) -> Erasure:
    """It as it is once it is done."""
    path = f"/v1/erasures/{row['id']}"
    done = eventually(lambda: ops.client.get(path), lambda found: found["step"] == "done")
    return Erasure.model_validate(done)


@pytest.mark.long
async def test_of_an_erased_stream_nothing_is_left_whatever_is_killed_in_the_middle(
    world: World, kafka: Kafka
) -> None:
    world.fill()
    gone, kept = world.gone.name, world.kept.name
    looked_at = [topics.UP, topics.DEAD, world.gone.topic]
    with world.lake_writer():
        wait_until(lambda: world.in_lake("device", "dev-1", "stream=") >= 6, "the lake has both")
        wait_until(lambda: world.in_lake("stream", gone, "summary=") >= 2, "and summaries")
        assert world.mentions(looked_at, gone).keys() == set(looked_at), "the control: it is there"
        with running(
            kafka.bootstrap, world.folder, SETTLE, {"EDGEWAKE_FAILPOINT": "erasure.topics"}
        ) as ops:
            wait_until(lambda: world.in_store(gone) == 1, "the store has it")
            ops.client.post("/v1/queries", json={"text": sql(world.query, gone)}).raise_for_status()
            refused = ops.client.delete(f"/v1/streams/{gone}")
            assert refused.status_code == 409
            assert world.query in refused.json()["detail"]
            asked = ops.client.delete(f"/v1/streams/{gone}?queries=true")
            assert asked.status_code == 202, asked.text
            wait_until(lambda: not ops.process.is_running(), "it is killed in the middle")
        assert world.table(topics.SUMMARIES[0]), "the control: it had not come to the summaries"
        assert world.mentions([topics.UP], gone), "nor to the log"
        with running(kafka.bootstrap, world.folder, SETTLE) as ops:
            row = finished(ops, asked.json())
            assert ops.client.get(f"/v1/streams/{gone}").status_code == 404
            assert ops.client.get(f"/v1/queries/{world.query}").status_code == 404
            wait_until(lambda: world.in_store(gone) == 0, "the store forgets it")
            assert world.in_store(kept) == 1
            assert (row.summaries, row.queries) == (4, (world.query,))
            assert row.rows >= 6
            assert row.left
        there = partition_counts(clients.admin(world.config))
        assert world.gone.topic not in there
        assert not [name for name in there if name.startswith(f"ew.q.{world.query}.")]
        assert world.mentions([topics.UP, topics.DEAD], gone) == {}
        for topic in topics.SUMMARIES:
            assert not [key for key in world.table(topic) if key.startswith(f"{gone}|".encode())]
        assert not list(world.lake.glob(f"stream={gone}/date=*/*"))
        assert world.in_lake("stream", gone) == 0
        assert world.in_lake("device", "dev-2", f"stream={kept}") == 5
        assert world.in_lake("stream", kept) == 2
        frames = [one for one in world.on_kafka(world.kept.topic) if one.key() != b"d"]
        assert len(frames) == 3
        world.gone = Feed(world.config, name=gone)
        world.gone.send("dev-1", 1)
        wait_until(
            lambda: world.in_lake("device", "dev-1", f"stream={gone}") == 1, "it begins anew"
        )


async def test_of_an_erased_device_no_reading_is_left_and_all_of_the_others_in_the_lake(
    world: World, kafka: Kafka
) -> None:
    world.fill()
    streams = (world.gone, world.kept)
    with world.lake_writer(), running(kafka.bootstrap, world.folder, SETTLE) as ops:
        wait_until(lambda: world.in_lake("device", "dev-2", "stream=") >= 8, "the lake has it")
        asked = run(ops, "devices", "erase", "dev-1", "--yes", "--wait", "120", "--json")
        assert asked.returncode == 0, asked.stderr
        row = Erasure.model_validate_json(asked.stdout)
        assert row.rows >= 6
        for feed in streams:
            assert [one for one in world.on_kafka(feed.topic) if one.key() == b"dev-1"] == []
            assert world.in_lake("device", "dev-1", f"stream={feed.name}") == 0
        assert world.in_lake("device", "dev-2", "stream=") == 8
        assert [one for one in world.on_kafka(topics.DEAD) if one.key() == b"dev-1"] == []
        assert [one for one in world.on_kafka(topics.UP) if one.key() == b"dev-1"] == []
        for topic in topics.SUMMARIES:
            assert not [key for key in world.table(topic) if b"|dev-1|" in key]
        wait_until(lambda: world.in_store(world.kept.name) == 1, "dev-2's summaries stay")
        entry = ops.client.get("/v1/audit").json()["items"]
        assert "/v1/devices/dev-1/readings" in [one["path"] for one in entry]


@pytest.mark.long
async def test_who_may_only_look_erases_nothing(world: World, kafka: Kafka, tmp_path: Path) -> None:
    declare(world.writer, world.gone.name)
    reader = "reader-key-0123456789"
    with running(kafka.bootstrap, tmp_path, SETTLE) as ops:
        path = f"/v1/streams/{world.gone.name}"
        eventually(lambda: ops.client.get(path))
        with (tmp_path / "ops.key").open("a") as keys:
            keys.write(f"ann read {reader}\n")
        asked = {"X-API-Key": reader}
        wait_until(lambda: ops.client.get(path, headers=asked).status_code == 200, "she may look")
        assert ops.client.delete(path, headers=asked).status_code == 403
        assert ops.client.delete(f"{path}_none").status_code == 404
        assert ops.client.delete("/v1/streams/part_status").status_code == 409
        assert ops.client.get("/v1/erasures/none").status_code == 404
        assert ops.client.get(path).status_code == 200


@pytest_asyncio.fixture(loop_scope="session")
async def page(kafka: Kafka, tmp_path: Path) -> AsyncIterator[tuple[Any, Ops]]:
    with running(kafka.bootstrap, tmp_path, SETTLE) as ops:
        async with chromium() as browser:
            opened = await open_page(browser, viewport={"width": 390, "height": 844})
            await opened.goto(ops.url + ops.client.post("/v1/tickets").json()["path"])
            await expect(opened.get_by_role("link", name="Streams", exact=True)).to_be_visible()
            yield opened, ops


async def test_a_stream_is_erased_from_its_page_once_its_name_is_typed(
    page: tuple[Any, Ops], writer: Writer, unique: Callable[[str], str]
) -> None:
    opened, ops = page
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await opened.evaluate("(to) => (location.hash = to)", f"#/streams/{stream}")
    button = opened.get_by_role("button", name="Erase", exact=True)
    await expect(button).to_be_disabled()
    await opened.get_by_label(f"Type {stream} to confirm").fill(stream)
    await button.click()
    await expect(opened.get_by_text("What is left")).to_be_visible(timeout=60_000)
    status = opened.get_by_role("main").get_by_role("status").first
    await expect(status).to_contain_text("gone")
    await holds_in_both_themes_and_on_a_phone(opened)
