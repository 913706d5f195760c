"""Who tries keys and tokens of readers has to wait, at every door, and nobody else."""

from __future__ import annotations

import itertools
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import tomli_w
import websockets.sync.client
from websockets.exceptions import InvalidStatus

from edgewake.cloud.rights.tries import OWN_MAX, OWN_S
from tests.access.world import Server
from tests.push.service import Service
from tests.rights.conftest import World
from tests.rights.forge import Maker
from tests.services import PATIENCE_S, Process, free_ports

pytestmark = pytest.mark.services

RIGHT, LEFT = "board-key-00000001", "single-key-0000001"
ADDRESSES = (f"127.0.7.{number}" for number in itertools.count(1))
"""A client of its own for each, since the servers are shared."""


def status_of(url: str, client: str, bearer: str, door: str) -> int:
    """What a client is answered that shows a key or token at a door."""
    headers = {"Authorization": f"Bearer {bearer}"}
    if door == "/v1/ws":
        try:
            with websockets.sync.client.connect(
                url.replace("http", "ws") + door,
                source_address=(client, 0),
                additional_headers=headers,
            ):
                return 200
        except InvalidStatus as refused:
            return int(refused.response.status_code)
    method, _, path = door.rpartition(" ")
    transport = httpx.HTTPTransport(local_address=client)
    with (
        httpx.Client(transport=transport, timeout=PATIENCE_S) as http,
        http.stream(method or "GET", url + path, headers=headers) as answer,
    ):
        if answer.status_code == 429:
            answer.read()
            assert answer.json()["title"] == "too many tries"
            assert 0 < int(answer.headers["Retry-After"]) <= OWN_S
        return answer.status_code


def guesses(shown: Callable[[str], int], count: int, made: Callable[[int], str]) -> list[int]:
    return [shown(made(number)) for number in range(count)]


@pytest.mark.parametrize("kind", ["keys", "tokens"])
@pytest.mark.parametrize(
    "door",
    ["/v1/streams/{}/events", "/v1/streams/{}/events?wait=0", "/v1/ws", "POST /v1/leases"],
    ids=["SSE", "page", "WebSocket", "push"],
)
def test_who_guesses_has_to_wait_at_every_door(
    rights_world: World, push: Service, door: str, kind: str
) -> None:
    url = push.url if "leases" in door else rights_world.server.url
    door, right = door.format(rights_world.mine.name), 422 if "leases" in door else 200
    hostile, modest, forger = next(ADDRESSES), next(ADDRESSES), Maker()

    def shown(client: str, bearer: str) -> int:
        return status_of(url, client, bearer, door)

    def made(number: int) -> str:
        if kind == "keys":
            return f"guess-{hostile}-{number:09}"
        return forger.token(exp=time.time() + 600, sub=f"anna-{number}").decode()

    assert shown(hostile, LEFT) == right, "who came in before"
    found = guesses(lambda bearer: shown(hostile, bearer), 2 * OWN_MAX, made)
    assert found[:OWN_MAX] == [401] * OWN_MAX
    assert Counter(found[OWN_MAX:])[429] >= OWN_MAX - 2, "one or two more, as time goes by"
    assert shown(hostile, RIGHT) == 429, "a guess that is right tells nothing then"
    assert shown(hostile, LEFT) == right, "who came in before does not wait"
    assert shown(modest, RIGHT) == right, "nor does anybody else"


def test_a_token_comes_in_beside_a_guesser(rights_world: World) -> None:
    """The app of a phone, behind one address with others."""
    world, address = rights_world, next(ADDRESSES)
    door = f"/v1/streams/{world.mine.name}/events?limit=1"

    def shown(bearer: str) -> int:
        return status_of(world.server.url, address, bearer, door)

    assert shown(world.token(sub="ann")) == 200
    assert guesses(shown, OWN_MAX, "guess-{:015}".format) == [401] * OWN_MAX
    assert shown(world.token(sub="ann", jti="another")) == 200
    assert shown(world.token(sub="ben")) == 200, "and one who never came in from there"
    assert shown(RIGHT) == 429, "control: a key that never came in from there"
    assert shown(Maker().token(exp=time.time() + 9, sub="ann").decode()) == 429, "a forger"


def test_tokens_that_are_expired_or_taken_back_are_no_guesses(rights_world: World) -> None:
    world, address = rights_world, next(ADDRESSES)
    door = f"/v1/streams/{world.mine.name}/events?limit=1"

    def shown(bearer: str) -> int:
        return status_of(world.server.url, address, bearer, door)

    for number in range(2 * OWN_MAX):
        wrong = {"exp": time.time() - 60} if number % 2 else {"aud": "others"}
        assert shown(world.token(sub=f"phone-{number}", **wrong)) == 401
    assert shown(world.token(sub="ben")) == 200
    assert [shown("old-key-0000000001") for _ in range(2 * OWN_MAX)] == [401] * 2 * OWN_MAX
    assert shown(world.token(sub="carl")) == 200, "a program with an old key is one wrong guess"


@contextmanager
def untried(world: World) -> Iterator[Server]:
    """The same server, which counts no wrong keys."""
    (port,) = free_ports(1)
    settings = tomllib.loads((world.directory / "access.toml").read_text())
    path = world.directory / f"untried-{port}.toml"
    path.write_text(tomli_w.dumps(settings | {"port": port, "name": f"access-{port}"}))
    command = [sys.executable, "-m", "tests.rights.untried_server", str(path)]
    server = Server(port, Process(command, path.with_suffix(".log")))
    try:
        yield server.start()
    finally:
        server.process.stop()


@pytest.mark.long
def test_control_without_the_bound_every_guess_is_looked_at(rights_world: World) -> None:
    address, door = next(ADDRESSES), f"/v1/streams/{rights_world.mine.name}/events?limit=1"
    with untried(rights_world) as server:

        def shown(bearer: str) -> int:
            return status_of(server.url, address, bearer, door)

        assert guesses(shown, 3 * OWN_MAX, "guess-{:015}".format) == [401] * 3 * OWN_MAX
        assert shown(RIGHT) == 200, "and the right one is found"
