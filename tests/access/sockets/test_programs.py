"""The programs of docs/websocket.md, as they stand there, and what is said in their messages."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Page

from edgewake.cloud.access.sockets import words
from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, server
from tests.feeds import DEADLINE_S, Feed
from tests.services import wait_until

pytestmark = pytest.mark.services

DOC = Path(__file__).parents[3] / "docs/websocket.md"


def program(language: str, server: Server, feed: Feed) -> str:
    """The document's program, for this server and stream."""
    found = re.search(rf"```{language}\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert found is not None
    return (
        found[1]
        .replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
        .replace("vehicle_position", feed.name)
    )


def test_the_program_in_python_goes_on_where_it_was(
    access_a: Server, access_b: Server, feed: Feed, tmp_path: Path
) -> None:
    """Killed and started again, at another server."""
    feed.send(n=5)
    seen: list[float] = []
    for one in (access_a, access_b):
        output = tmp_path / f"{one.port}.txt"
        with output.open("w") as out:
            running = subprocess.Popen(
                [sys.executable, "-c", program("python", one, feed)], stdout=out, cwd=tmp_path
            )
            try:
                wait_until(lambda: output.read_text().count("\n") == 5, "it shows five")  # noqa: B023
            finally:
                running.kill()
                running.wait()
        seen += [ast.literal_eval(line)["n"] for line in output.read_text().splitlines()]
        feed.send(n=5)
    assert seen == [float(n) for n in range(1, 11)]


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="session")
async def test_the_program_in_javascript_goes_on_after_its_server_died(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    browser_page: Page,
    feed: Feed,
) -> None:
    feed.send(n=25)
    with server(access_directory, kafka_config, cursor_key) as running:
        await browser_page.goto(f"{running.url}/v1/streams")
        script = "window.seen = []; const show = (data) => window.seen.push(data.n);\n"
        await browser_page.evaluate(f"() => {{ {script + program('js', running, feed)} }}")
        await browser_page.wait_for_function("window.seen.length == 25")
        running.process.kill()
        feed.send(n=25)
        running.restart_after_kill()
        await browser_page.wait_for_function("window.seen.length >= 50")
        assert await browser_page.evaluate("window.seen") == list(range(1, 51))


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_goes_from_an_event_source_to_a_socket_and_back(
    access_a: Server, browser_page: Page, feed: Feed
) -> None:
    feed.send(n=30)
    await browser_page.goto(f"{access_a.url}/v1/streams")
    script = """async ([name]) => {
        const seen = [];
        const source = (place) => new Promise((done) => {
            const stream = new EventSource(`/v1/streams/${name}/events?${place}`);
            let count = 0;
            stream.onmessage = (event) => {
                if (count++ == 10) return;
                seen.push(JSON.parse(event.data).n);
                if (count == 10) { stream.close(); done(event.lastEventId); }
            };
        });
        const socket = (after) => new Promise((done) => {
            const one = new WebSocket(`ws://${location.host}/v1/ws`);
            const words = { type: "subscribe", id: "a", streams: [name], after, credits: 10 };
            let count = 0;
            one.onopen = () => one.send(JSON.stringify(words));
            one.onmessage = ({ data }) => {
                for (const event of JSON.parse(data).events ?? []) {
                    seen.push(event.data.n);
                    if (++count == 10) { one.close(); done(event.cursor); }
                }
            };
        });
        const cursor = await socket(await source("from=earliest"));
        await source(`last_event_id=${cursor}`);
        return seen;
    }"""
    async with asyncio.timeout(DEADLINE_S):
        assert await browser_page.evaluate(script, [feed.name]) == list(range(1, 31))


def test_the_document_names_all_that_may_be_said_and_heard() -> None:
    text = DOC.read_text()
    said = re.findall(r'Literal\["(\w+)"\]', Path(words.__file__).read_text())
    assert said
    assert all(f"| `{kind}` |" in text for kind in said)
