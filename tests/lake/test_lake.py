"""The lake on a real Kafka: written by a process that is killed, asked in one query with what Kafka
has after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.lake.asking import Asking
from edgewake.cloud.lake.manifest import File, contents
from edgewake.cloud.lake.upkeep import MERGE_FILES
from edgewake.protocol.errors import Unavailable
from tests.feeds import Feed
from tests.services import Process, part, wait_until


class Lake:
    """A lake of one stream, and the process that writes it."""

    def __init__(self, kafka: KafkaConfig, folder: Path, stream: str) -> None:
        self.kafka, self.folder, self.stream = kafka, folder, stream
        self.asking = Asking(folder / "lake", kafka)
        self.config = folder / "lake.toml"
        self.config.write_text(
            f'data_dir = "{folder / "lake"}"\nevery_s = 0.2\nonly = '
            f'["{stream}"]\n[kafka]\nbootstrap = "{kafka.bootstrap}"\n'
        )

    def writer(self, failpoint: str = "") -> Process:
        """`edgewake lake`, not started."""
        command = part("lake", self.config, self.folder / "lake.log").command
        return Process(command, self.folder / "lake.log", env={"EDGEWAKE_FAILPOINT": failpoint})

    def killed_at(self, failpoint: str) -> None:
        """The writer runs until it dies there."""
        with self.writer(failpoint) as process:
            wait_until(lambda: not process.is_running(), f"{failpoint} kills")

    def files(self) -> Sequence[File]:
        """Files that the manifest names."""
        return contents(self.folder / "lake", [f"ew.s.{self.stream}"]).files

    def rows(self) -> int:
        """Rows in them."""
        return sum(file.rows for file in self.files())

    async def ask(self, sql: str, **more: Any) -> Any:
        """The answer."""
        question = {"sql": sql.replace("STREAM", self.stream), "rows": 100, "seconds": 60.0} | more
        return orjson.loads(await self.asking.ask(question))


@pytest.fixture
def lake(kafka_config: KafkaConfig, feed: Feed, tmp_path: Path) -> Lake:
    return Lake(kafka_config, tmp_path, feed.name)


ONCE = "SELECT count(*), count(DISTINCT (device, epoch, seq)), max(n) FROM STREAM"


async def test_each_row_is_once_in_past_and_present_whatever_kills_the_writer(
    lake: Lake, feed: Feed
) -> None:
    for i in range(10):
        feed.send(f"dev-{i}", 20)
    lake.killed_at("lake.written:1")
    assert list((lake.folder / "lake").glob("*/*/*.parquet")), (
        "a file is there that the manifest does not name"
    )
    assert lake.rows() == 0
    assert (await lake.ask(ONCE))["rows"] == [[200, 200, 20.0]]
    lake.killed_at("lake.committed:1")
    assert lake.rows() > 0
    assert (await lake.ask(ONCE))["rows"] == [[200, 200, 20.0]]
    on_disk = [
        pq.read_metadata(path).num_rows for path in (lake.folder / "lake").glob("*/*/*.parquet")
    ]
    assert sum(on_disk) > lake.rows(), (
        "the control: who reads the folder in place of the manifest counts rows twice"
    )
    with lake.writer():
        wait_until(lambda: lake.rows() == 200, "all is in the lake")
    feed.send("dev-1", 5)
    found = await lake.ask(ONCE)
    assert (found["rows"], found["past"]["rows"], found["present"]["rows"]) == (
        [[205, 205, 25.0]],
        200,
        5,
    )


@pytest.mark.long
async def test_many_files_become_one_and_every_row_stays_once(lake: Lake, feed: Feed) -> None:
    with lake.writer():
        for rows in range(1, MERGE_FILES + 1):
            feed.send()
            wait_until(lambda rows=rows: lake.rows() == rows, "it is in the lake")  # type: ignore[misc]
    assert len(lake.files()) == MERGE_FILES
    damaged = lake.folder / "lake" / lake.files()[3].path
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    with lake.writer() as process:
        wait_until(
            lambda: "lake.damaged" in (lake.folder / "lake.log").read_text(), "it cannot be merged"
        )
        feed.send()
        wait_until(lambda: lake.rows() == MERGE_FILES + 1, "what comes is written all the same")
        with pytest.raises(Unavailable, match="cannot be read"):
            await lake.ask(ONCE)
        assert process.is_running()
    damaged.write_bytes(whole)
    with lake.writer() as process:
        wait_until(lambda: len(lake.files()) == 1, "the files are merged")
        feed.send()
        wait_until(lambda: lake.rows() == MERGE_FILES + 2, "it goes on")
        assert process.is_running()
    assert (await lake.ask(ONCE))["rows"] == [[MERGE_FILES + 2, MERGE_FILES + 2, MERGE_FILES + 2.0]]


async def test_what_kafka_deleted_before_the_lake_had_it_is_counted_in_every_answer(
    lake: Lake, feed: Feed
) -> None:
    with lake.writer():
        feed.send(n=3)
        wait_until(lambda: lake.rows() == 3, "it is in the lake")
    feed.send(n=2)
    reader = clients.consumer(lake.kafka, "test-lake")
    for partition in range(2):
        feed.trim(partition, watermarks(reader, feed.topic, partition)[1])
    reader.close()
    feed.send(n=1)
    found = await lake.ask(ONCE)
    assert (found["rows"], found["past"]["lost_records"] > 0) == ([[4, 4, 6.0]], True)
    with lake.writer():
        wait_until(lambda: lake.rows() == 4, "it goes on behind the gap")
    assert (await lake.ask(ONCE))["past"]["lost_records"] == found["past"]["lost_records"]


async def test_texts_of_before_a_decision_are_numbers_by_one_expression(
    lake: Lake, feed: Feed
) -> None:
    """The one of docs/operations.md, over a file of the past and what Kafka has after it."""
    page = Path("docs/operations.md").read_text("utf-8")
    (sql,) = re.findall(r'edgewake sql "(SELECT [^"]*speed_odd[^"]*)"', page)
    asked = sql.replace("vehicle_position", "STREAM")
    columns: dict[str, list[Any]] = {
        "speed": [3.5, None, None],
        "speed_odd": [None, "21.5", "fast"],
    }
    feed.send("car-1", 3, fields=columns)
    with lake.writer():
        wait_until(lambda: lake.rows() == 3, "it is in the lake")
    feed.send("car-1", 2, fields={"speed": [None, 4.0], "speed_odd": ["8", None]})
    found = await lake.ask(f"SELECT list(speed ORDER BY t) FROM ({asked})")
    assert found["rows"] == [[[3.5, 21.5, None, 8.0, 4.0]]]
