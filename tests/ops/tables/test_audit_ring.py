"""The audit list: who did what, the newest first, with a bound."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edgewake.cloud.ops.tables.audit_ring import ENTRIES_MAX, AuditRing
from tests.ops.service import KEY, running
from tests.services import Kafka


def record(number: int, event: str = "ops.audit") -> logging.LogRecord:
    facts = {"event": event, "holder": "ann", "method": "PUT", "path": f"/{number}", "status": 200}
    return logging.makeLogRecord({"created": 1.0, **facts})


def test_the_newest_are_kept_and_other_lines_of_the_log_are_none():
    ring = AuditRing()
    for number in range(ENTRIES_MAX + 5):
        ring.emit(record(number))
    ring.emit(record(0, "part.ready"))
    found = ring.newest(before=None, limit=2)
    assert [one.path for one in found] == [f"/{ENTRIES_MAX + 4}", f"/{ENTRIES_MAX + 3}"]
    assert len(ring.newest(before=None, limit=10 * ENTRIES_MAX)) == ENTRIES_MAX
    assert ring.newest(before=found[-1].number, limit=1)[0].path == f"/{ENTRIES_MAX + 2}"


@pytest.mark.services
def test_changes_and_refused_ones_are_listed_with_who_made_them(kafka: Kafka, tmp_path: Path):
    with running(kafka.bootstrap, tmp_path) as ops:
        ops.client.put("/v1/boards/mine", json={"title": "t"}).raise_for_status()
        ops.client.delete("/v1/boards/none_such")
        first = ops.client.get("/v1/audit?limit=1").json()
        (newest,) = first["items"]
        assert (newest["method"], newest["path"], newest["status"]) == (
            "DELETE",
            "/v1/boards/none_such",
            404,
        )
        older = ops.client.get(f"/v1/audit?before={first['next']}").json()
        assert [one["path"] for one in older["items"]][:1] == ["/v1/boards/mine"]
        assert older["items"][0]["holder"] == "operator"
        assert KEY not in str(older)
        ops.client.delete("/v1/boards/mine")
