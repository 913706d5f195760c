"""What happened, and problems with who took them, are there after the server was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceSeen
from edgewake.protocol.ops.query import Progress, QueryState, Registration
from tests.ops.conftest import Writer
from tests.ops.service import Ops, running
from tests.services import Kafka, wait_until

pytestmark = pytest.mark.services


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
