"""Who changed what is on every operations server's list, from before its start, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.ops.service import KEY, Ops, running
from tests.services import Kafka, wait_until

pytestmark = pytest.mark.services


def changes(ops: Ops, path: str) -> list[tuple[str, int]]:
    """What was done with a path, the newest first."""
    found: list[dict[str, Any]] = ops.client.get("/v1/audit?limit=500").json()["items"]
    assert KEY not in str(found)
    return [(one["method"], one["status"]) for one in found if one["path"] == path]


def test_a_server_lists_what_others_did_and_what_was_done_before_it_started(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory, unique: Callable[[str], str]
) -> None:
    path = f"/v1/boards/{unique('board')}"
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    with running(kafka.bootstrap, one) as first:
        first.client.put(path, json={"title": "t"}).raise_for_status()
        assert changes(first, path) == [("PUT", 200)], "its own change is there at once"
        with running(kafka.bootstrap, two) as second:
            wait_until(lambda: changes(second, path) == [("PUT", 200)], "one of before its start")
            second.client.delete(path).raise_for_status()
            both = [("DELETE", 204), ("PUT", 200)]
            assert changes(second, path) == both
            wait_until(lambda: changes(first, path) == both, "one of the other server")
            first.process.kill()
            assert second.client.delete(path).status_code == 404
            assert changes(second, path) == [("DELETE", 404), *both], "refused ones, too"


@pytest.mark.long
def test_a_page_leads_to_the_older_ones(kafka: Kafka, tmp_path: Path) -> None:
    with running(kafka.bootstrap, tmp_path) as ops:
        for name in ("a_page", "b_page"):
            ops.client.delete(f"/v1/boards/{name}")
        page = ops.client.get("/v1/audit?limit=1").json()
        assert [one["path"] for one in page["items"]] == ["/v1/boards/b_page"]
        older = ops.client.get(f"/v1/audit?limit=1&before={page['next']}").json()
        assert [one["path"] for one in older["items"]] == ["/v1/boards/a_page"]
        assert older["items"][0]["holder"] == "operator"
        assert ops.client.get("/v1/audit?before=1").json() == {"items": [], "next": None}


def test_its_topic_is_bounded_by_a_year_and_by_bytes() -> None:
    settings = topic_admin.topic_settings(KafkaConfig(), topics.AUDIT)
    assert settings["retention.ms"] == str(366 * 86_400_000)
    assert settings["retention.bytes"] == str(128 << 20)
    assert "cleanup.policy" not in settings, "no entry takes another's place"
