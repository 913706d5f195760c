"""Copies of ten thousand rows and of a million: whole, chosen, in pages, by key, what changed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.access.latest.latest_changes import KEPT_MAX
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from tests.access.world import server
from tests.feeds import unique

pytestmark = pytest.mark.services

PARTITIONS = 2
PAGE = 10_000


def write(config: KafkaConfig, stream: str, devices: Iterable[int], seq: int) -> None:
    """The `seq`th reading of each of these devices; `n` is the last digit of its number."""
    producer = clients.producer(config, "many-rows")
    began = time.monotonic()
    now = time.time_ns() // 1_000_000
    bodies = [
        encode(Frame(1, seq, seq, [now], {"n": [digit], "seq": [seq]})) for digit in range(10)
    ]
    for device in devices:
        value = record.encode(
            device=f"car-{device}",
            stream=stream,
            mode=Mode.ACK,
            sent_at=now,
            received_at=now,
            frame_bytes=bodies[device % 10],
        )
        while True:
            try:
                producer.produce(topics.stream_topic(stream), value, partition=device % PARTITIONS)
                break
            except BufferError:  # its queue is full
                producer.poll(0.1)
    assert producer.flush(60) == 0
    print(f"written: {time.monotonic() - began:.1f} s")


class Client:
    """Asks for copies, and prints how long each took."""

    def __init__(self, http: httpx.Client, stream: str) -> None:
        self._http, self._path = http, f"/v1/sync/{stream}"

    def ask(self, what: str, **words: Any) -> dict[str, Any]:
        began = time.monotonic()
        while (answer := self._http.get(self._path, params=words)).status_code == 503:
            assert time.monotonic() - began < 600, answer.text
            time.sleep(0.2)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        took, size = time.monotonic() - began, len(answer.content) / 1e6
        print(f"{what}: {took:.2f} s, {size:.1f} MB, {found['kind']}, {found['missing']}")
        return found


@pytest.mark.parametrize(
    "rows", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)], ids="{:,}".format
)
def test_a_copy_of_many_rows(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, rows: int
) -> None:
    stream = unique("many")
    config = kafka_config.model_copy(update={"partitions": PARTITIONS})
    topic_admin.ensure_topics(config, [topics.stream_topic(stream)])
    write(config, stream, range(rows), 1)
    bounds: dict[str, Any] = {"latest_mib": 3200, "latest_records": rows}
    with (
        server(access_directory, config, cursor_key, **bounds) as running,
        httpx.Client(base_url=running.url, timeout=120) as http,
    ):
        before = running.rss_mib()
        client = Client(http, stream)
        whole = client.ask("whole")
        assert (whole["kind"], whole["complete"]) == ("snapshot", True)
        copy = {one["key"]: one["row"] for one in whole["rows"]}
        assert len(copy) == rows
        grown = running.rss_mib() - before
        print(f"memory: {grown:.0f} MiB")
        assert grown < 250 + rows * 1200 / 2**20, "a row, and its part of the answer"

        chosen = client.ask("chosen", where="n = 3")
        assert len(chosen["rows"]) == rows // 10
        (one,) = client.ask("by key", key="car-77")["rows"]
        assert one["row"]["n"] == 7
        keys, page = [], None
        while True:
            found = client.ask("a page", limit=PAGE, **({"page": page} if page else {}))
            keys += [entry["key"] for entry in found["rows"]]
            page = found["next"]
            if page is None:
                break
        assert keys == sorted(copy), "each is in exactly one page"

        write(config, stream, [7, 8, rows], 2)
        changed = client.ask("changes", after=whole["cursor"], wait=30)
        while len(changed["changes"]) < 3:
            changed = client.ask("changes", after=whole["cursor"], wait=1)
        assert {(change["op"], change["key"]) for change in changed["changes"]} == {
            ("update", "car-7"),
            ("update", "car-8"),
            ("insert", f"car-{rows}"),
        }
        many = min(rows // 2, 2 * KEPT_MAX)
        write(config, stream, range(many), 3)
        back = client.ask("back after many changes", after=changed["cursor"], wait=30)
        while len(back["changes"]) < many:
            back = client.ask("back after many changes", after=changed["cursor"], wait=1)
        assert back["kind"] == "changes"
        assert {change["key"] for change in back["changes"]} == {f"car-{i}" for i in range(many)}
