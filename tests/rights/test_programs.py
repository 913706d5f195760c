"""The programs of the pages that show a key or token, as they stand there, at a server with
rights.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from edgewake.edge.client import Credentials, Follower, Subscription, TokenFile
from tests.chromium import chromium, open_page
from tests.cutting_proxy import cutting_proxy
from tests.feeds import DEADLINE_S
from tests.house.source import ROOT
from tests.rights.conftest import World, world_in
from tests.services import PATIENCE_S, Kafka, wait_until

pytestmark = pytest.mark.services

MODULES: Final = ROOT / "tests/js/node_modules"
RUNS: Final = {".py": sys.executable, ".mjs": "node", ".sh": "sh"}
PROGRAMS: Final = {
    name: block
    for page in ("ways", "websocket", "sync", "rights")
    for block, name in re.findall(
        r"```\w+\n((?:#|//) (\w+\.\w+)\b.*?)```", (ROOT / f"docs/{page}.md").read_text(), re.DOTALL
    )
}
KEY: Final = "board-key-00000001"


@pytest.fixture(scope="module")
def own_world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("programs"), kafka) as world:
        yield world


@contextmanager
def running(world: World, name: str, directory: Path, key: str = KEY) -> Iterator[Path]:
    """A program of a page while it runs; the file that it writes to."""
    text = PROGRAMS[name].replace("127.0.0.1:8700", f"127.0.0.1:{world.server.port}")
    path, output = directory / name, directory / "output.txt"
    path.write_text(text.replace("vehicle_position", world.mine.name))
    (directory / "node_modules").symlink_to(MODULES)
    with output.open("w") as out:
        process = subprocess.Popen(
            [RUNS[path.suffix], str(path)],
            cwd=directory,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"KEY": key},
            start_new_session=True,
        )
        try:
            yield output
        finally:
            subprocess.run(["kill", "--", f"-{process.pid}"], check=False)
            process.wait(PATIENCE_S)


@pytest.mark.parametrize(
    "name",
    [
        "follow_with_key.py",
        "follow_with_key.mjs",
        "follow_with_key.sh",
        "socket_with_key.py",
        "keep_copy.py",
        "keep_copy.mjs",
        "keep_copy.sh",
    ],
)
def test_a_program_that_shows_a_key_is_shown_what_it_may_see(
    own_world: World, tmp_path: Path, name: str
) -> None:
    with running(own_world, name, tmp_path) as output:
        wait_until(lambda: "secret" in output.read_text(), "it shows what only that key sees")


@pytest.mark.parametrize("name", ["follow_with_key.sh", "socket_with_key.py", "keep_copy.sh"])
def test_a_program_with_a_wrong_key_says_so(own_world: World, tmp_path: Path, name: str) -> None:
    with running(own_world, name, tmp_path, "nobodys-key-000001") as output:
        wait_until(lambda: "401" in output.read_text(), "it says what is wrong")


async def test_a_follower_goes_on_with_the_token_that_took_the_place_of_an_expired_one(
    own_world: World, tmp_path: Path
) -> None:
    """It came back with the old one, and stopped for good."""
    world, file = own_world, tmp_path / "token"
    ends = time.time() + 4
    file.write_text(world.token(exp=ends))
    follower = Follower(
        [world.server.url],
        Subscription(streams=(world.mine.name,)),
        start="latest",
        credentials=Credentials(token=TokenFile(file)),
    )
    found: list[float] = []

    async def follow() -> None:
        async for received in follower.events():
            if received.kind == "":
                found.append(received.fields["speed"])

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while time.time() < ends + 1 or 777.0 not in found:
                await asyncio.to_thread(world.mine.send, "car-1", fields={"speed": [777.0]})
                await asyncio.sleep(0.1)
            assert not following.done(), "it tries on while its token is being renewed"
            file.write_text(world.token())
            while 888.0 not in found:
                await asyncio.to_thread(world.mine.send, "car-1", fields={"speed": [888.0]})
                await asyncio.sleep(0.1)
    finally:
        following.cancel()
        await asyncio.wait({following})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def browser_page(browser: Browser) -> AsyncIterator[Page]:
    page = await open_page(browser)
    yield page
    await page.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_with_tickets_goes_on_over_cuts(own_world: World, browser_page: Page) -> None:
    """An EventSource alone comes back with its ticket, which is used, and is closed for good."""
    world = own_world
    cuts = [b'"speed":1001.0', b'"speed":1001.0', b'"speed":1002.0']
    async with cutting_proxy(world.server.port, cuts) as proxy:
        here = f"http://127.0.0.1:{proxy.port}"
        await browser_page.goto(f"{here}/healthz")
        await browser_page.evaluate(
            """async ([token, path]) => {
              const headers = { Authorization: `Bearer ${token}` };
              const answer = await fetch("/v1/tickets", { method: "POST", headers });
              const { ticket } = await answer.json();
              window.alone = new EventSource(`${path}?from=latest&ticket=${ticket}`);
              window.opened = new Promise((done) => (alone.onopen = done));
              await opened;
            }""",
            [world.token(), f"/v1/streams/{world.mine.name}/events"],
        )
        program = (
            PROGRAMS["follow_with_tickets.js"]
            .replace("https://readings.example.org", here)
            .replace("vehicle_position", world.mine.name)
            .replace('from: "earliest"', 'from: "latest"')
        )
        words = "window.seen = []; const show = (event) => window.seen.push(event.speed);\n"
        token = f"const token = async () => {world.token()!r};\n"
        await browser_page.evaluate(f"() => {{ {words}{token}{program} }}")
        async with asyncio.timeout(4 * PATIENCE_S):
            while 1000.0 not in await browser_page.evaluate("seen"):
                await asyncio.to_thread(world.mine.send, "car-1", fields={"speed": [1000.0]})
            for speed in (1001.0, 1002.0, 1003.0):
                await asyncio.to_thread(world.mine.send, "car-1", fields={"speed": [speed]})
                await browser_page.wait_for_function(f"seen.includes({speed})")
        await browser_page.wait_for_function("alone.readyState === EventSource.CLOSED")
        assert proxy.made == 3
    found = await browser_page.evaluate("seen.filter((speed) => speed > 1000)")
    assert found == [1001.0, 1002.0, 1003.0], "each once, over every cut"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_opens_a_socket_with_a_ticket(own_world: World, browser_page: Page) -> None:
    text = (ROOT / "docs/websocket.md").read_text()
    (block,) = re.findall(r"```js\n(// a ticket for each socket.*?)```", text, re.DOTALL)
    await browser_page.goto(f"{own_world.server.url}/healthz")
    words = f"const token = async () => {own_world.token()!r};\n{block}"
    script = f"""async ([address, name]) => {{
      {words}
      const socket = await opened(address);
      const subscribe = {{ type: "subscribe", id: "a", streams: [name], from: "earliest" }};
      socket.onopen = () => socket.send(JSON.stringify(subscribe));
      return new Promise((done) => {{
        socket.onmessage = ({{ data }}) => {{
          const found = JSON.parse(data);
          if (found.type === "events") done(found.events.map((event) => event.data.device));
        }};
      }});
    }}"""
    async with asyncio.timeout(DEADLINE_S):
        found = await browser_page.evaluate(script, [own_world.server.url, own_world.mine.name])
    assert set(found) == {"car-1"}
