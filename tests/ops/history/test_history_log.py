"""What happened, and problems with who took them, are there after the server was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.history import history_log
from edgewake.cloud.ops.history.history_log import PENDING_MAX, SAME_MS, HistoryLog
from edgewake.cloud.ops.tables.past import ENTRIES_MAX, Noted
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.device import DeviceSeen
from edgewake.protocol.ops.query import Progress, QueryState, Registration
from tests.ops.conftest import Writer
from tests.ops.service import Ops, running
from tests.services import Kafka, wait_until


class Written:
    """Takes entries in place of Kafka."""

    def __init__(self, *_: object) -> None:
        self.entries: list[Noted] = []

    def put(self, value: bytes) -> bool:
        self.entries.append(Noted.model_validate_json(value))
        return True


def state(device: str, at: int, state: str = "offline") -> Noted:
    return Noted(at=at, kind="device", name=device, facts={"state": state})


def successor(monkeypatch: pytest.MonkeyPatch) -> tuple[HistoryLog, Written]:
    written = Written()
    monkeypatch.setattr(history_log, "EntryWriter", lambda *_: written)
    config = KafkaConfig(bootstrap="127.0.0.1:1")
    return HistoryLog(config, SystemClock(), lambda: True), written


def test_a_successor_writes_what_the_server_before_it_did_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, written = successor(monkeypatch)
    log.past.take(1, state("car-1", 100_000))
    log.past.take(2, state("car-2", 100_000 - SAME_MS - 1))
    log.past.take(3, state("car-3", 100_000, "online"))
    log._pending.extend(state(f"car-{number}", 100_000) for number in (3, 1, 2, 4))
    log._write_pending(is_new=True)
    assert [one.name for one in written.entries] == ["car-3", "car-2", "car-4"]
    assert not log._pending


def test_a_successor_of_a_long_history_does_not_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All devices went away as the server before it died: for minutes it answered nobody."""
    log, written = successor(monkeypatch)
    for number in range(ENTRIES_MAX):
        log.past.take(number + 1, state(f"d{number}", 100_000, "online"))
    log._pending.extend(state(f"d{number}", 300_000) for number in range(PENDING_MAX))
    began = time.monotonic()
    log._write_pending(is_new=True)
    assert time.monotonic() - began < 5
    assert len(written.entries) == PENDING_MAX


def happened(ops: Ops, name: str) -> list[dict[str, Any]]:
    return ops.client.get("/v1/history", params={"name": name}).json()["items"]


def problems(ops: Ops, name: str, **more: Any) -> list[dict[str, Any]]:
    found = ops.client.get("/v1/problems", params={"limit": 500, **more}).json()["items"]
    return [one for one in found if one["name"] == name]


def put_query(writer: Writer, name: str, state: QueryState) -> None:
    now = time.time_ns() // 1_000_000
    row = Registration(name=name, text="SELECT 1", registered_at=now)
    progress = Progress(
        query=name, stream="s", state=state, registered_at=now, detail="a reason", updated_at=now
    )
    writer.put(topics.QUERIES, name, row.model_dump_json().encode())
    writer.put(topics.PROGRESS, name, progress.model_dump_json().encode())


@pytest.mark.services
@pytest.mark.long
def test_they_survive_a_kill(
    kafka: Kafka, tmp_path: Path, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, query = unique("dev"), unique("q")
    with running(kafka.bootstrap, tmp_path) as ops:
        now = time.time_ns() // 1_000_000
        seen = DeviceSeen(device=device, last_seen=now, skew_ms=0, records=3)
        writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
        put_query(writer, query, QueryState.FAILED)
        wait_until(lambda: len(happened(ops, device)) == 1, "the device's coming is kept")
        wait_until(lambda: len(problems(ops, query, open=True)) == 1, "the problem is kept")
        (problem,) = problems(ops, query)
        path = f"/v1/problems/{problem['id']}/acknowledge"
        taken = ops.client.post(path, json={"note": "I look"}).json()
        assert (taken["acknowledged_by"], taken["note"]) == ("operator", "I look")
        before = happened(ops, device)
        ops.process.kill()
    with running(kafka.bootstrap, tmp_path) as ops:
        wait_until(lambda: happened(ops, device) == before, "the history is read back")
        (after,) = problems(ops, query)
        assert after == taken
        put_query(writer, query, QueryState.RUNNING)
        wait_until(lambda: problems(ops, query, open=True) == [], "the problem ends")
        (over,) = problems(ops, query)
        assert over["ended_at"] > over["began_at"]
        assert over["acknowledged_by"] == "operator"
        for topic in (topics.QUERIES, topics.PROGRESS):
            writer.put(topic, query, None)


@pytest.mark.long
@pytest.mark.services
def test_an_unknown_problem_is_said(kafka: Kafka, tmp_path: Path) -> None:
    with running(kafka.bootstrap, tmp_path) as ops:
        answer = ops.client.post("/v1/problems/1-1/acknowledge", json={})
        assert (answer.status_code, answer.json()["type"].split(":")[-1].split("/")[-1]) == (
            404,
            "no_such_problem",
        )


def _code(answer: httpx.Response) -> str:
    """What kind of problem it is."""
    return str(answer.json()["type"]).rpartition(":")[2]
