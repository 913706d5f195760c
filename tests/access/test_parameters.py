"""Every route of an access server and a push proxy refuses what it does not know, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.access.world import Server
from tests.feeds import Feed
from tests.push.service import Service, serving
from tests.services import PATIENCE_S, Kafka


@pytest.fixture(scope="module")
def push(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving("push", kafka.bootstrap, Path(tmp_path_factory.mktemp("parameters"))) as service:
        yield service


def operations(base: str) -> list[tuple[str, str]]:
    """Each method and path of a part's own description, with the parts of the path filled in."""
    paths = httpx.get(f"{base}/openapi.json", timeout=PATIENCE_S).json()["paths"]
    return [
        (method, path.replace("{", "").replace("}", ""))
        for path, methods in paths.items()
        for method in methods
    ]


def refused(base: str, method: str, path: str, query: str) -> str:
    answer = httpx.request(method, f"{base}{path}?{query}", timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:edgewake:problem:parameter"), (
        f"{method} {path}: {answer.text}"
    )
    detail: str = answer.json()["detail"]
    return detail


def test_no_route_ignores_a_parameter(access_a: Server, push: Service) -> None:
    found = [(base, *one) for base in (access_a.url, push.url) for one in operations(base)]
    assert len(found) >= 9
    for base, method, path in found:
        assert "'wehre' is not known" in refused(
            base,
            method,
            path,
            "stream=s&wehre=1" if (method, path) == ("get", "/v1/events") else "wehre=1",
        )


def test_one_that_another_route_has_is_refused_here(access_a: Server, feed: Feed) -> None:
    """It gave all vehicles to who asked for one."""
    assert "known are" in refused(access_a.url, "GET", f"/v1/latest/{feed.name}", "select=device")


def test_the_nearest_name_is_told_and_one_that_is_there_twice_is_refused(
    access_a: Server, feed: Feed
) -> None:
    path = f"/v1/streams/{feed.name}/events"
    assert refused(access_a.url, "GET", path, "hartbeat=10").endswith("did you mean heartbeat?")
    assert "more than once" in refused(access_a.url, "GET", path, "where=n%3E1&where=n%3E2")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("&".join(["stream=s"] * 17), 400),
        ("stream=", 404),
        ("stream=s&where=" + "n" * 2000, 422),
        ("stream=s&where=%ED%A0%80", 422),
        ("stream=%00", 404),
        ("stream=" + "s" * 300, 404),
        ("stream=s&from=" + "9" * 5000, 400),
        ("stream=s&heartbeat=" + "9" * 5000, 400),
        ("stream=s&limit=" + "9" * 5000, 400),
        ("stream=s&wait=1e400", 400),
        ("stream=s&lease=%F0%9F%98%80.%00", 400),
        ("", 422),
    ],
)
def test_whatever_is_asked_is_no_fault_of_the_server(
    access_a: Server, query: str, status: int
) -> None:
    assert httpx.get(f"{access_a.url}/v1/events?{query}", timeout=PATIENCE_S).status_code == status


def test_a_websocket_handshake_at_a_stream_is_refused_in_words(
    access_a: Server, feed: Feed
) -> None:
    """It got 200 and an event stream."""
    words = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = httpx.get(
        f"{access_a.url}/v1/streams/{feed.name}/events", headers=words, timeout=PATIENCE_S
    )
    assert (answer.status_code, answer.json()["title"]) == (400, "websocket")
