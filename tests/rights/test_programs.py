"""The programs of the pages that show a key or token, as they stand there, at a server with
rights.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from edgewake.edge.client import Credentials, Follower, Subscription, TokenFile
from tests.chromium import chromium, open_page
from tests.cutting_proxy import cutting_proxy
from tests.feeds import DEADLINE_S
from tests.house.source import ROOT
from tests.push.service import Service
from tests.rights.conftest import World, world_in
from tests.services import PATIENCE_S, Kafka, wait_until

pytestmark = pytest.mark.services

MODULES: Final = ROOT / "tests/js/node_modules"
RUNS: Final = {".py": sys.executable, ".mjs": "node", ".sh": "sh"}
PAGES: Final = ("ways", "access", "websocket", "sync", "push", "deliveries", "groups", "rights")
PROGRAMS: Final = {
    name: block
    for page in PAGES
    for block, name in re.findall(
        r"```\w+\n((?:#|//) (\w+\.\w+)\b.*?)```", (ROOT / f"docs/{page}.md").read_text(), re.DOTALL
    )
}
KEY: Final = "board-key-00000001"
EVENTS: Final = "/v1/streams/{}/events"
NOBODY: Final = "127.0.0.1:9"
"""Where nobody is called."""
READING: Final = (
    *(f"follow.{kind}" for kind in ("py", "mjs", "sh")),
    *(f"follow_socket.{kind}" for kind in ("py", "mjs")),
    "read_socket.py",
    *(f"keep_copy.{kind}" for kind in ("py", "mjs", "sh")),
    *(f"read_pages.{kind}" for kind in ("py", "mjs", "sh")),
    *(f"latest.{kind}" for kind in ("py", "mjs", "sh")),
    "sheet.sh",
    "small.py",
)
"""They read at an access server."""
PUSHED: Final = (
    *(f"work.{kind}" for kind in ("py", "mjs", "sh")),
    "register.sh",
    *(f"woken.{kind}" for kind in ("py", "mjs", "sh")),
)
"""They ask a push proxy."""
SHORT: Final = ("follow.py", "follow_socket.mjs", "keep_copy.sh", "work.py", "woken.mjs")
"""Those that `make test` runs with a key: each language, and each library."""
ELSEWHERE: Final = {
    "follow_with_tickets.js": "here, in a browser",
    "sheet.pq": "tests/access/test_ways.py: what it asks",
    "receive.py": "tests/deliveries/test_delivery_docs.py: it is called, and asks nothing",
    "bridge.toml": "tests/rights/test_rights_docs.py: a configuration",
    "receive.mjs": "tests/deliveries/test_delivery_docs.py: it is called, and asks nothing",
}


def some(names: Iterable[str]) -> list[Any]:
    """All of them, of which `make test` runs the short list."""
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.fixture(scope="module")
def own_world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("programs"), kafka) as world:
        yield world


def written(world: World, name: str, directory: Path, key: str, push: Service | None) -> list[str]:
    """A program of a page for these servers, and how it is run."""
    text = PROGRAMS[name].replace("127.0.0.1:8700", f"127.0.0.1:{world.server.port}")
    if push is not None:
        own = f"own_{secrets.token_hex(5)}"
        text = text.replace("http://127.0.0.1:8703", push.url).replace("127.0.0.1:9000", NOBODY)
        text = text.replace("speed_kmh", "speed")
        text = re.sub(r"\b(bookings|fast_cars)\b", own, text)
    path = directory / name
    path.write_text(text.replace("vehicle_position", world.mine.name))
    (directory / "key.txt").write_text(key)
    (directory / "node_modules").symlink_to(MODULES)
    return [RUNS[path.suffix], str(path), f"{world.server.url}{EVENTS.format(world.mine.name)}"]


@contextmanager
def running(
    world: World, name: str, directory: Path, key: str = KEY, push: Service | None = None
) -> Iterator[Callable[[], str]]:
    """A program of a page while it runs, begun again where it ends; what it shows and leaves."""
    words, output = written(world, name, directory, key, push), directory / "output.txt"
    environment = os.environ | {"KEY": key, "ADDRESS": words[-1]}
    process: subprocess.Popen[bytes] | None = None

    def shown() -> str:
        nonlocal process
        if process is None or process.poll() is not None:
            for place in ("cursor", "cursor.txt", "place.json"):  # from the beginning
                (directory / place).unlink(missing_ok=True)
            with output.open("a") as out:
                process = subprocess.Popen(
                    words,
                    cwd=directory,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        table = directory / "readings.csv"
        return output.read_text() + (table.read_text() if table.exists() else "")

    try:
        yield shown
    finally:
        if process is not None:
            subprocess.run(["kill", "--", f"-{process.pid}"], check=False)
            process.wait(PATIENCE_S)


def test_all_programs_of_the_pages_are_run() -> None:
    assert set(PROGRAMS) == {*READING, *PUSHED, *ELSEWHERE}


@pytest.mark.parametrize("name", some(READING))
def test_a_program_that_shows_a_key_is_shown_what_it_may_see(
    own_world: World, tmp_path: Path, name: str
) -> None:
    with running(own_world, name, tmp_path) as shown:
        wait_until(lambda: "secret" in shown(), "it shows what only that key sees")


@pytest.mark.parametrize("name", some(READING))
def test_a_program_with_a_wrong_key_says_so(own_world: World, tmp_path: Path, name: str) -> None:
    """A WebSocket's client in JavaScript is not told the status, and Follower tells the words."""
    words = {"follow_socket.mjs": "closed 1006", "follow.py": "FollowError: unknown key"}
    said = words.get(name, "401")
    with running(own_world, name, tmp_path, "nobodys-key-000001") as shown:
        wait_until(lambda: said in shown(), "it says what is wrong")


@pytest.mark.parametrize("name", some(PUSHED))
def test_a_program_that_shows_a_key_to_a_push_proxy_is_served(
    rights_world: World, push: Service, tmp_path: Path, name: str
) -> None:
    """Delivered and leased are what the key sees; the worker is given it."""

    def is_served(text: str) -> bool:
        if name == "register.sh":
            return '"secret":"whsec_' in text
        if name.startswith("work"):
            return "secret" in text
        kept = tmp_path / ("place.json" if name.endswith(".mjs") else "lease.json")
        has_lease = kept.exists() and re.search(r'"id": ?"[^"]', kept.read_text()) is not None
        return "secret" in text and has_lease

    try:
        with running(rights_world, name, tmp_path, push=push) as shown:
            wait_until(lambda: is_served(shown()), "it is served")
    finally:
        with httpx.Client(base_url=push.url, headers={"Authorization": f"Bearer {KEY}"}) as http:
            for kind in ("deliveries", "groups"):
                for one in http.get(f"/v1/{kind}").json()[kind]:
                    http.delete(f"/v1/{kind}/{one['name']}")


@pytest.mark.parametrize("name", some(PUSHED))
def test_a_program_that_shows_a_push_proxy_a_wrong_key_says_so(
    rights_world: World, push: Service, tmp_path: Path, name: str
) -> None:
    with running(rights_world, name, tmp_path, "nobodys-key-000001", push) as shown:
        wait_until(lambda: "401" in shown(), "it says what is wrong")


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
