"""What a client of the HTTP side meets: names, headers, refusals, the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.access.world import Event, Server, open_stream, server
from tests.feeds import DEADLINE_S, Feed, QueryFeed, declare, eventually, unique
from tests.services import PATIENCE_S, free_ports, part


def get(base: str, path: str, **headers: str) -> httpx.Response:
    return httpx.get(base + path, headers=headers, timeout=PATIENCE_S)


def test_streams_and_queries_are_listed(
    access_a: Server, feed: Feed, query_feed: QueryFeed
) -> None:
    def listed() -> dict[str, str]:
        return {
            row["name"]: row["kind"] for row in get(access_a.url, "/v1/streams").json()["streams"]
        }

    asyncio.run(
        eventually(lambda: {feed.name, query_feed.name} <= listed().keys(), "both are listed")
    )
    assert (listed()[feed.name], listed()[query_feed.name]) == ("stream", "query")


def test_an_unknown_name_is_a_problem_that_names_near_ones(access_a: Server, feed: Feed) -> None:
    answer = get(access_a.url, f"/v1/streams/{feed.name}x/events")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert feed.name in answer.json()["near"]


def test_a_stream_that_was_made_a_moment_ago_is_found_at_once(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    name = unique("newborn")
    assert get(access_a.url, f"/v1/streams/{name}/events").status_code == 404
    new_feed(name=name)
    assert (
        httpx.head(f"{access_a.url}/v1/streams/{name}/events", timeout=PATIENCE_S).status_code
        == 200
    )


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("where=foo(", 422, "filter"),
        ("where=sum(n)%3E1", 422, "filter"),
        ("select=n%2B1", 422, "filter"),
        ("from=yesterday", 400, "from"),
        ("on_gap=cry", 400, "on_gap"),
        ("wehre=n%3E1", 400, "parameter"),
        ("stream=other", 400, "parameter"),
        ("last_event_ids=x", 400, "parameter"),
        ("last_event_id=x", 400, "cursor_garbage"),
        ("lastEventId=v2.BBBB", 400, "cursor_garbage"),
        ("lastEventID=v2.AAAA", 400, "cursor_garbage"),
    ],
)
def test_a_wrong_word_is_refused_by_name(
    access_a: Server, feed: Feed, query: str, status: int, code: str
) -> None:
    answer = get(access_a.url, f"/v1/streams/{feed.name}/events?{query}")
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:edgewake:problem:{code}")


def test_a_parameter_that_is_not_known_is_refused_with_the_one_that_is_meant(
    access_a: Server, feed: Feed
) -> None:
    """Without it the client would be given everything."""
    answer = get(access_a.url, f"/v1/events?stream={feed.name}&wehre=n%3E1")
    assert answer.json()["detail"] == "parameter 'wehre' is not known; did you mean where?"


async def test_a_filter_that_can_hardly_be_meant_is_a_warning_in_the_stream(
    access_a: Server, new_feed: Callable[..., Feed], kafka_config: KafkaConfig
) -> None:
    """A 422 would end a browser's stream, and a field that is unknown today may come tomorrow."""
    feed = new_feed()
    declare(kafka_config, Stream(name=feed.name, fields={"n": FieldInfo(type=FieldType.NUMBER)}))

    def fields() -> object:
        return next(
            (
                row["fields"]
                for row in get(access_a.url, "/v1/streams").json()["streams"]
                if row["name"] == feed.name
            ),
            None,
        )

    await eventually(fields, "the catalogue has it")
    async with open_stream(
        access_a.url, feed.name, where="m > 1 AND n < '5'", select="nn"
    ) as stream:
        warnings = await stream.take(3, kinds=frozenset({"warning"}))
    found = [orjson.loads(event.data) for event in warnings]
    assert [(one["code"], one.get("field")) for one in found] == [
        ("unknown_field", "m"),
        ("impossible_comparison", None),
        ("unknown_field", "nn"),
    ]
    assert found[2]["near"] == ["n"]
    assert {event.id for event in warnings} == {stream.parser.last_event_id}


def test_more_than_sixteen_streams_are_refused(access_a: Server) -> None:
    assert (
        get(access_a.url, "/v1/events?" + "&".join(f"stream=s{i}" for i in range(17))).status_code
        == 400
    )


def test_a_stranger_s_host_name_is_refused(access_a: Server, feed: Feed) -> None:
    """A page of evil.example whose name was made to resolve to the loopback reads nothing."""
    answer = get(access_a.url, f"/v1/streams/{feed.name}/events", Host="evil.example")
    assert (answer.status_code, answer.json()["title"]) == (421, "host")


async def test_the_headers_fit_an_endless_answer(access_a: Server, feed: Feed) -> None:
    async with open_stream(access_a.url, feed.name) as stream:
        assert stream.status == 200
        cursor = await stream.until_cursor()
        wanted = {
            "content-type": "text/event-stream",
            "cache-control": "no-store, no-transform",
            "x-accel-buffering": "no",
            "edgewake-start": "latest",
        }
        assert wanted.items() <= stream.headers.items()
        assert stream.headers["edgewake-cursor"] == cursor.lower()
        assert bytes(stream.raw).startswith(b":\nretry: ")


async def test_a_client_says_how_long_silence_may_be(access_a: Server, feed: Feed) -> None:
    async with open_stream(access_a.url, feed.name, heartbeat=240) as stream:
        assert (stream.status, stream.headers["edgewake-heartbeat"]) == (200, "240")
    for wrong in ("4", "301", "-9", "1e2", "soon"):
        refused = get(access_a.url, f"/v1/streams/{feed.name}/events?heartbeat={wrong}")
        assert (refused.status_code, "from 5 to 300" in refused.json()["detail"]) == (400, True)


@pytest.mark.long
async def test_progress_behind_a_filter_comes_with_the_heartbeat_and_lets_a_radio_sleep(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    with server(access_directory, kafka_config, cursor_key, heartbeat_s=2) as calm:
        async with open_stream(calm.url, feed.name, where="n > 100") as stream:
            await stream.until_cursor()
            pieces = 0
            for _ in range(40):
                await asyncio.to_thread(feed.send)
                await asyncio.sleep(0.05)
            feed.send(n=61)
            async with asyncio.timeout(DEADLINE_S):
                events: list[Event] = []
                while not [event for event in events if event.type == "message"]:
                    piece = await stream.chunk()
                    assert piece is not None
                    pieces += 1
                    events += stream.parser.feed(piece)
            # Forty ticks brought something that is not shown. At most one piece in two seconds says
            # so, however long they took.
            assert pieces < 20
            assert orjson.loads(events[-1].data)["n"] == 101


def test_head_ends_and_options_names_the_methods(access_a: Server, feed: Feed) -> None:
    head = httpx.head(f"{access_a.url}/v1/streams/{feed.name}/events", timeout=PATIENCE_S)
    options = httpx.options(f"{access_a.url}/v1/events", timeout=PATIENCE_S)
    assert (head.status_code, head.content, options.status_code, options.headers["allow"]) == (
        200,
        b"",
        204,
        "GET, HEAD, POST, OPTIONS",
    )
    refused = httpx.put(f"{access_a.url}/v1/events", timeout=PATIENCE_S)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST, OPTIONS")


def test_other_sites_may_not_read_unless_they_are_configured(
    access_a: Server, access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path
) -> None:
    site = "https://dash.example.org"
    assert (
        "access-control-allow-origin" not in get(access_a.url, "/v1/streams", Origin=site).headers
    )
    with server(access_directory, kafka_config, cursor_key, allow_origins=[site]) as open_one:
        assert (
            get(open_one.url, "/v1/streams", Origin=site).headers["access-control-allow-origin"]
            == site
        )
        assert (
            "access-control-allow-origin"
            not in get(open_one.url, "/v1/streams", Origin="https://evil.example").headers
        )
        asked = {
            "Origin": site,
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "last-event-id",
        }
        assert (
            httpx.options(
                f"{open_one.url}/v1/events", headers=asked, timeout=PATIENCE_S
            ).status_code
            == 200
        )


def test_the_page_is_served_with_an_etag(access_a: Server) -> None:
    page = get(access_a.url, "/")
    assert "text/html" in page.headers["content-type"]
    assert get(access_a.url, "/", **{"If-None-Match": page.headers["etag"]}).status_code in (
        200,
        304,
    )
    script = get(access_a.url, "/page/app.js")
    assert (script.status_code, script.headers["cache-control"]) == (200, "no-cache")
    assert (
        get(access_a.url, "/page/app.js", **{"If-None-Match": script.headers["etag"]}).status_code
        == 304
    )
    assert get(access_a.url, "/page/../access/app.py").status_code == 404
    assert get(access_a.url, "/page/%2e%2e/kafka.py").status_code == 404


def test_health_readiness_and_metrics_answer(access_a: Server) -> None:
    assert get(access_a.url, "/healthz").json() == {"status": "ok"}
    assert get(access_a.url, "/readyz").status_code == 200
    assert "edgewake_access_clients" in get(access_a.url, "/metrics").text


def test_a_request_head_without_end_is_refused(access_a: Server) -> None:
    answer = get(access_a.url, "/v1/events?stream=s&where=" + "x" * 40_000)
    assert answer.status_code == 431


async def test_a_full_server_tells_programs_503_and_browsers_to_come_again(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    with server(access_directory, kafka_config, cursor_key, clients_max=1) as small:
        async with open_stream(small.url, feed.name) as first:
            await first.until_cursor()
            path = f"/v1/streams/{feed.name}/events"
            refused = await asyncio.to_thread(get, small.url, path)
            assert refused.status_code == 503
            # Not the same for all: they would all come back in that second.
            assert 2 <= int(refused.headers["retry-after"]) <= 6
            browser = await asyncio.to_thread(get, small.url, path, **{"Sec-Fetch-Mode": "cors"})
            assert (browser.status_code, browser.headers["content-type"]) == (
                200,
                "text/event-stream; charset=utf-8",
            )
            assert browser.text.startswith("retry: ")


def test_a_server_without_kafka_lives_is_not_ready_and_stops_at_once(tmp_path: Path) -> None:
    port, nobody = free_ports(2)
    config = tmp_path / "access.toml"
    config.write_text(f'port = {port}\n[kafka]\nbootstrap = "127.0.0.1:{nobody}"\n')
    with part("access", config, tmp_path / "log") as process:
        process.wait_for("kafka.away")
        base = f"http://127.0.0.1:{port}"
        assert get(base, "/healthz").status_code == 200
        assert get(base, "/readyz").status_code == 503
        assert get(base, "/v1/streams/x/events").status_code == 503
        assert process.stop() == 0


def test_a_wrong_configuration_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    config = tmp_path / "access.toml"
    config.write_text("clients_mux = 5\n")
    process = part("access", config, tmp_path / "log")
    process.start()
    assert process._child is not None
    assert process._child.wait(60) == 2
    assert "clients_mux: unknown key; did you mean 'clients_max'?" in process.output()
