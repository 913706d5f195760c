"""A device's readings are erased from the real system: agents, bridge, sequencer, Spark, lake.

Its readings hold a text that nobody else has, so it can be looked for on every disk of the cloud.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.dataset as ds
import pytest

from edgewake.cloud.kafka import clients
from edgewake.protocol import topics
from edgewake.protocol.ops.erasure import Erasure
from tests.bridge.running import read
from tests.services import PATIENCE_S, Process
from tests.story.system import OPS_KEY, System

STREAM, QUERY = "rooms", "rooms_10s"
GONE, KEPT = "mill", "pump"
MARK = "owner-7f3a91c2"
READINGS = 30
SQL = f"""-- name: {QUERY}
-- description: How many there were.
SELECT device, count(*) AS readings FROM {STREAM}
GROUP BY window(event_time, '10 seconds'), device
"""


class Erasing(System):
    """With a lake, and summaries every five seconds."""

    def _part(
        self, command: str, name: str, text: str, environment: dict[str, str] | None = None
    ) -> Process:
        if command == "ops":
            text = f'erase_settle_s = 10\nlake_dir = "{self.directory}/lake"\n' + text
        return super()._part(command, name, text, environment)

    def _make_parts(self) -> dict[str, Process]:
        lake = f'data_dir = "{self.directory}/lake"\nevery_s = 0.5\n'
        made = super()._make_parts()
        return {"lake": self._part("lake", "lake", lake + self._kafka_table("lake")), **made}

    def measure(self, device: str, first: int, note: str) -> None:
        """Readings of an agent, now."""
        now_ms = time.time_ns() // 1_000_000
        lines = [
            json.dumps({"t": now_ms, "n": first + i, "note": f"{note}-{i}"})
            for i in range(READINGS)
        ]
        with self.input_file(device).open("a") as out:
            out.write("\n".join(lines) + "\n")

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask the operations API."""
        headers = {"Authorization": f"Bearer {OPS_KEY}"}
        return httpx.request(
            method, f"{self.ops_url}{path}", headers=headers, timeout=PATIENCE_S, **more
        )

    def by_sql(self) -> dict[str, int]:
        """Device → its readings, in past and present."""
        text = f"SELECT device, count(*) AS n FROM {STREAM} GROUP BY device"
        answer = self.ask("POST", "/v1/sql", json={"sql": text, "objects": True})
        if answer.status_code != 200:  # the lake has not begun
            return {}
        return {row["device"]: row["n"] for row in answer.json()["rows"]}

    def summed_up(self) -> int:
        """Readings of the stream in Spark's summaries."""
        answer = self.ask("GET", f"/v1/summaries/{STREAM}/n")
        if answer.status_code != 200:  # there is none yet
            return 0
        return sum(row["figures"]["readings"] for row in answer.json()["rows"])

    def files_with(self, text: str, *, folder: str) -> list[Path]:
        """Files below a folder of the system that hold it as it is."""
        return [
            path.relative_to(self.directory)
            for path in (self.directory / folder).rglob("*")
            if path.is_file() and text.encode() in path.read_bytes()
        ]

    def keys(self, topic: str) -> set[bytes]:
        """Keys of the records that Kafka still gives."""
        return {one.key() or b"" for one in read(self.kafka_config, topic)}


def shown(system: Erasing, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events of a stream from its beginning: their names and their data."""
    ((host, port),) = system.servers
    url = f"http://{host}:{port}/v1/streams/{name}/events"
    with httpx.stream("GET", url, params={"from": "earliest"}, timeout=PATIENCE_S) as answer:
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))
            elif not line:
                kind = ""


@pytest.mark.long
async def test_of_a_device_nothing_is_left_but_what_is_said(tmp_path: Path) -> None:
    system = Erasing(
        tmp_path, agents=[GONE, KEPT], stream=STREAM, bridges=1, servers=1,
        analysis="summary_interval_s = 10\ncalm_trigger_ms = 1000\n",
    )  # fmt: skip
    async with system:
        system.register(QUERY, SQL)
        await system.start("sequencer", "bridge-1", "access-1", "ops", "lake", "analysis")
        await system.start(GONE, KEPT)
        system.measure(GONE, 0, MARK)
        system.measure(KEPT, 0, "other")
        both = {GONE: READINGS, KEPT: READINGS}
        await system.until(lambda: system.by_sql() == both, "SQL has both")
        # A result whose windows hold the device's readings, and a summary of their minute.
        results = topics.query_topic(QUERY, system.registered[QUERY])
        await system.until(lambda: _rows_of(system, results, GONE), "results of it")
        await system.until(lambda: system.summed_up() == 2 * READINGS, "summaries of both")
        # The controls: before, all of these hold it.
        stream = topics.stream_topic(STREAM)
        for topic in (topics.UP, stream):
            assert {GONE.encode(), KEPT.encode()} <= system.keys(topic)
        await system.until(lambda: _in_lake(system, GONE) == READINGS, "the lake has its file")

        asked = system.ask("DELETE", f"/v1/devices/{GONE}/readings")
        assert asked.status_code == 202, asked.text
        path = f"/v1/erasures/{asked.json()['id']}"
        await system.until(
            lambda: system.ask("GET", path).json()["step"] == "done", "it is done", every_s=0.5
        )
        row = Erasure.model_validate(system.ask("GET", path).json())
        # Complete: in Kafka, in the lake, by SQL, by a reader.
        for topic in (topics.UP, stream, topics.DEAD):
            assert GONE.encode() not in system.keys(topic)
        assert _in_lake(system, GONE) == 0
        assert system.files_with(MARK, folder="lake") == []
        in_ops = {path.name.partition(".db")[0] for path in system.files_with(MARK, folder="ops")}
        assert in_ops <= {"summaries"}
        assert system.by_sql() == {KEPT: READINGS}
        assert _in_lake(system, KEPT) == READINGS
        # Said: how much went, what is left and why, and who asked.
        assert row.rows >= READINGS
        assert {cut.topic for cut in row.cuts} >= {topics.UP, stream}
        assert any("texts that it sent may be among their most frequent" in one for one in row.left)
        assert any("in the files that Kafka still writes to" in one for one in row.left)
        assert _rows_of(system, results, GONE), "as is said, results stay"
        entries = system.ask("GET", "/v1/audit").json()["items"]
        assert f"/v1/devices/{GONE}/readings" in [one["path"] for one in entries]
        # What it sends from now on is new, with every number of its own, and nothing comes back.
        system.measure(GONE, 1000, "later")
        both = {GONE: READINGS, KEPT: READINGS}
        await system.until(lambda: system.by_sql() == both, "it sends on")
        events = await asyncio.to_thread(_of_device, system, GONE, READINGS)
        assert [one["n"] for one in events] == list(range(1000, 1000 + READINGS))


def _rows_of(system: Erasing, topic: str, device: str) -> list[dict[str, Any]]:
    counts = clients.admin(system.kafka_config).list_topics(timeout=10).topics
    if topic not in counts:
        return []
    found = [json.loads(one.value() or b"{}") for one in read(system.kafka_config, topic)]
    return [one for one in found if one.get("device") == device]


def _in_lake(system: Erasing, device: str) -> int:
    found = 0
    for path in (system.directory / "lake").glob(f"stream={STREAM}/date=*/*.parquet"):
        found += ds.dataset(path).to_table()["device"].to_pylist().count(device)
    return found


def _of_device(system: Erasing, device: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for kind, data in shown(system, STREAM):
        if not kind and data["device"] == device:
            found.append(data)
            if len(found) == count:
                break
    return found
