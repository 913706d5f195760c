"""Chains on the log: exactly once over kills, and what they say of themselves."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.processors.build import build
from edgewake.edge.processors.config import ChainConfig
from edgewake.edge.processors.processing import Processing, name_of
from edgewake.edge.things.streams import made_of
from edgewake.protocol.topics import of_thing
from tests.edge.helpers import Sent, json_of, opened, put
from tests.edge.peer import Peer
from tests.edge.processors import chain_crash
from tests.edge.test_agent import config, edgewake
from tests.services import PATIENCE_S, Mosquitto, part

KILLS = [
    ("received", 2),
    ("inserted", 5),
    ("committed", 9),
    ("accepted", 14),
    ("received", 20),
    ("inserted", 5),
    ("committed", 1),
    ("committed", 12),
]


def expected() -> dict[str, list[list[Any]]]:
    """What the chains make in one go, without a log."""
    flowing = {"speed": chain_crash.readings()}
    for one in map(build, chain_crash.CHAINS):
        flowing[one.into] = list(one.apply(one.begin(), flowing[one.stream]).readings)
    found = {into: made for into, made in flowing.items() if into != "speed"}
    return orjson.loads(orjson.dumps(found))  # type: ignore[no-any-return]


def life(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tests.edge.processors.chain_crash",
        str(directory),
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def lives(directory: Path, kills: list[tuple[str, int]], *arguments: str) -> object:
    """Killed so often, then once more to the end."""
    for place, nth in kills:
        killed = life(directory, "--kill", place, str(nth), *arguments)
        assert killed.returncode == -signal.SIGKILL, (place, nth, killed.stderr[-2000:])
    last = life(directory, *arguments)
    assert last.returncode == 0, last.stderr[-2000:]
    return orjson.loads(last.stdout)


@pytest.mark.long
def test_kills_at_named_places_leave_the_output_of_no_kill(tmp_path: Path) -> None:
    assert len(expected()["mean"]) == chain_crash.N // chain_crash.EVERY
    assert expected()["high"]
    assert 190 < len(expected()["first"]) <= 200, "each of 200 cards once"
    assert lives(tmp_path, KILLS) == expected()


@pytest.mark.long
def test_cursor_and_output_in_two_transactions_lose(tmp_path: Path) -> None:
    """The control: the same kills find what is not committed together."""
    assert lives(tmp_path, [("committed", nth) for nth in (3, 4, 5, 6, 7)], "--apart") != expected()


def expected_of_things() -> dict[str, list[list[Any]]]:
    """What the chains make of each thing's readings alone, in one go, without a log."""
    found: dict[str, list[Any]] = {chain.into: [] for chain in chain_crash.CHAINS}
    for thing in chain_crash.THINGS:
        flowing = {"speed": [one for of, one in chain_crash.of_things() if of == thing]}
        for chain in map(build, chain_crash.CHAINS):
            made = list(chain.apply(chain.begin(), flowing[chain.stream]).readings)
            flowing[chain.into] = made
            if made:
                found[made_of(of_thing("speed", thing) if thing else "speed", chain.into)] = made
    return orjson.loads(orjson.dumps(found))  # type: ignore[no-any-return]


@pytest.mark.long
def test_a_kill_leaves_what_things_behind_a_gateway_have_made(tmp_path: Path) -> None:
    made = expected_of_things()
    assert {"mean", "mean/of/press-1", "high/of/press-2", "first/of/kiln"} <= made.keys()
    assert lives(tmp_path, [("committed", 12)], "--things") == made


@pytest.mark.long
def test_kills_at_named_places_leave_what_things_have_made_of_no_kill(tmp_path: Path) -> None:
    assert lives(tmp_path, KILLS, "--things") == expected_of_things()


@pytest.mark.long
def test_things_lose_where_cursor_and_output_are_in_two_transactions(tmp_path: Path) -> None:
    """The control: what a thing's window had made is lost or comes twice."""
    kills = [("committed", nth) for nth in (3, 4, 5, 6, 7)]
    assert lives(tmp_path, kills, "--apart", "--things") != expected_of_things()


SPEED = (
    '[[source]]\ntype = "file_tail"\nstream = "speed"\nsend = false\npath = "{path}"\npoll_s = '
    "0.01\n"
)
CHAINS = """
[[chain]]
stream = "speed"
into = "speed_mean"
[[chain.processor]]
type = "filter"
where = "n % 7 <> 0"
[[chain.processor]]
type = "window"
fields = ["n"]
size_count = 10
every_count = 5
aggregates = ["sum", "min", "max"]

[[chain]]
stream = "speed_mean"
into = "speed_alert"
lane = "urgent"
[[chain.processor]]
type = "rule"
name = "even"
when = "n_min % 2 = 0"
"""


async def test_a_killed_agent_makes_what_one_makes_that_was_never_killed(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    lines, written, device = tmp_path / "speed.jsonl", 0, "chained"
    path = config(tmp_path, mosquitto.port, device, SPEED.format(path=lines) + CHAINS)
    assert (
        "chains: speed → speed_mean, speed_mean → speed_alert"
        in edgewake("check", "--config", path).stdout
    )
    async with Peer(mosquitto.port) as peer:
        agent = part("agent", path, tmp_path / "out")

        def arrived() -> int:
            return len(peer.kept.readings(device, "speed_mean"))

        for kills in range(5):
            before = arrived()
            agent.start()
            with lines.open("a") as file:
                for n in range(written, written + 500):
                    file.write(f'{{"t": {1_790_000_000_000 + n}, "n": {n}}}\n')
            written += 500
            await peer.until(lambda: arrived() > before)  # noqa: B023
            if kills < 4:
                agent.kill()
        rows = [(1_790_000_000_000 + n, {"n": n}) for n in range(written)]
        chains = [build(ChainConfig.checked(one)) for one in tomllib.loads(CHAINS)["chain"]]
        means = chains[0].apply(chains[0].begin(), rows).readings
        alerts = chains[1].apply(chains[1].begin(), means).readings
        await peer.until(
            lambda: (
                arrived() >= len(means)
                and len(peer.kept.readings(device, "speed_alert")) >= len(alerts)
            )
        )
        assert agent.stop() == 0
        said: Any = json_of(edgewake("status", "--config", path, "--json").stdout)
        assert peer.kept.readings(device, "speed_mean") == [fields for _, fields in means]
        assert peer.kept.readings(device, "speed_alert") == [fields for _, fields in alerts]
        assert (said["chains"]["speed_mean"]["in"], said["chains"]["speed_mean"]["missed"]) == (
            written,
            0,
        )
        assert len(alerts) > 10
        assert peer.kept.readings(device, "speed") == [], "what the chain made is sent instead"


# in one process


def mean(size: int = 2, *, into: str = "speed_mean") -> ChainConfig:
    window = {"type": "window", "fields": ["n"], "size_count": size, "aggregates": ["mean"]}
    return ChainConfig.checked({"stream": "speed", "into": into, "processor": [window]})


@asynccontextmanager
async def processed(events: EventLog, *chains: ChainConfig) -> AsyncIterator[Processing]:
    processing = Processing(chains, events)
    await processing.forget_others()
    tasks = [asyncio.create_task(chain.run()) for chain in processing.chains.values()]
    yield processing
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def until(processing: Processing, count: int, into: str = "speed_mean") -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while (found := processing.counts()[into])["in"] + found["missed"] < count:
            await asyncio.sleep(0.01)
    return found  # type: ignore[no-any-return]


async def test_a_chain_goes_on_where_it_was_and_begins_anew_when_it_is_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as events:
        await asyncio.to_thread(put, events, range(3))
        async with processed(events, mean()) as processing:
            assert (await until(processing, 3))["out"] == 1
    with opened(tmp_path) as events:
        async with processed(events, mean()) as processing:
            await asyncio.to_thread(put, events, range(3, 4))
            assert (await until(processing, 4))["out"] == 2
    with opened(tmp_path) as events:
        async with processed(events, mean(size=1)) as processing:
            await asyncio.to_thread(put, events, range(4, 5))
            assert await until(processing, 1) == {
                "stream": "speed",
                "into": "speed_mean",
                "in": 1,
                "out": 1,
                "remarks": {},
                "missed": 0,
            }
    assert "its configuration changed" in caplog.text


async def test_a_chain_that_is_no_longer_configured_holds_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        async with processed(events, mean(), mean(into="other")):
            await settled(lambda: len(events.consumers()) == 2)
            assert events.consumers() == {name_of("speed_mean"), name_of("other")}
        async with processed(events, mean()):
            assert events.consumers() == {name_of("speed_mean")}


async def test_the_first_readings_of_a_stream_that_is_not_sent_are_kept_for_its_chain(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, local=frozenset({"speed"})) as events:
        processing = Processing([mean()], events)
        await processing.open()
        await asyncio.to_thread(put, events, range(4))
        task = asyncio.create_task(processing.chains["speed_mean"].run())
        assert (await until(processing, 4))["out"] == 2
        task.cancel()
        await asyncio.wait([task])


async def test_what_the_log_could_not_give_is_counted(tmp_path: Path) -> None:
    """The chain is not there while the log gives up what only the chain still needs."""
    sent = Sent()
    config = LogConfig(linger_ms=0, reserve_bytes=0, consumer_bytes=0)
    with opened(tmp_path, sent=sent, config=config) as events:
        await events.consumer(name_of("speed_mean"), ["speed"])
        events.start_sending()
        await asyncio.to_thread(put, events, range(20))
        async with asyncio.timeout(PATIENCE_S):
            while sent.acknowledge(events) or (await events.ask_status()).backlog_readings:
                await asyncio.sleep(0.01)
    with opened(tmp_path, config=config) as events:
        async with processed(events, mean()) as processing:
            await asyncio.to_thread(put, events, range(20, 22))
            found = await until(processing, 22)
    assert found["missed"] > 0
    assert found["in"] + found["missed"] == 22
