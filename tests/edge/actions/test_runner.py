"""An action and its alerts: once each, not too late, and harming nobody."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from edgewake.edge.actions.runner import PREFIX, Actions
from edgewake.edge.config import AgentConfig
from edgewake.edge.log.config import LogConfig
from edgewake.edge.mqtt_link import MqttLink, connect
from edgewake.edge.workers import Workers
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import SystemClock
from tests.edge.actions.helpers import HeldClock, config, raised, runs, until
from tests.edge.actions.test_webhook import Server
from tests.edge.helpers import opened
from tests.services import PATIENCE_S, free_ports

ALERTS = 8


def life(directory: Path, kill: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tests.edge.actions.action_crash",
        str(directory),
        str(ALERTS),
        kill,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def done(directory: Path) -> list[int]:
    """The alerts that were acted on."""
    path = directory / "done"
    return (
        [json.loads(line)["n"] for line in path.read_text().splitlines()] if path.exists() else []
    )


@pytest.mark.services
@pytest.mark.parametrize(("kill", "left_out"), [("begun", {2}), ("acted", set())])
def test_a_kill_makes_nothing_happen_twice_and_what_may_be_left_out_is_said(
    tmp_path: Path, kill: str, left_out: set[int]
) -> None:
    killed = life(tmp_path, kill)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = done(tmp_path)
    last = life(tmp_path, "")
    assert last.returncode == 0, last.stderr
    assert done(tmp_path) == [n for n in range(ALERTS) if n not in left_out]
    assert before == [0, 1] + [2] * (kill == "acted"), "the kill came in the middle"
    counts = json.loads(last.stdout)
    assert (counts["done"], counts["unknown"]) == (ALERTS - 1, 1)


@pytest.mark.services
def test_without_the_position_kept_first_things_happen_twice(tmp_path: Path) -> None:
    """The control: a kill as above finds what is not durable before."""
    killed = subprocess.run(
        [sys.executable, "-c", CONTROL, str(tmp_path), str(ALERTS)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert life(tmp_path, "").returncode == 0
    assert max(Counter(done(tmp_path)).values()) > 1


CONTROL = """
import asyncio, sys
from pathlib import Path
from edgewake.edge.log.consumer import Consumer
from tests.edge.actions import action_crash
COMMIT = Consumer.commit
async def later(self, cursor, *, state=None, derived=None, wait=True):
    if not wait:
        await COMMIT(self, cursor, state=state, derived=derived, wait=True)
Consumer.commit = later
asyncio.run(action_crash.live(Path(sys.argv[1]), int(sys.argv[2]), "acted"))
"""


async def test_what_is_long_over_is_not_acted_on(tmp_path: Path) -> None:
    server = Server()
    with server.running() as url, opened(tmp_path) as events:
        async with runs(events, config(type="webhook", url=url, expire_s=60)) as runner:
            await raised(events, 1, age_s=3600)
            await raised(events, 2)
            await raised(events, 3, age_s=61)
            await until(lambda: runner.counts()["expired"] == 2)
            assert runner.counts()["done"] == 1
    assert [json.loads(body)["n"] for _, _, body in server.requests] == [2]


@pytest.mark.parametrize(("waited_s", "outcome"), [(61, "done"), (119, "done"), (121, "expired")])
async def test_an_alert_about_a_window_counts_from_the_windows_end(
    tmp_path: Path, waited_s: int, outcome: str
) -> None:
    """It has the time of the window's start, so that one of a minute is a minute old when it is
    made.
    """
    begin_ms, table = 1_790_000_040_000, {"stream": "heat", "into": "heat_1min"}
    agent = AgentConfig.checked(
        {
            "device": "truck-12",
            "data_dir": str(tmp_path),
            "source": [{"type": "json_lines", "stream": "heat"}],
            "chain": [
                table
                | {
                    "processor": [
                        {"type": "window", "fields": ["x"], "size_s": 60, "aggregates": ["mean"]}
                    ]
                },
                {
                    "stream": "heat_1min",
                    "into": "alerts",
                    "processor": [{"type": "rule", "name": "too hot", "when": "x_mean > 80"}],
                },
            ],
            "action": [
                {
                    "name": "siren",
                    "type": "command",
                    "stream": "alerts",
                    "command": ["/bin/true"],
                    "expire_s": 60,
                    "pause_s": 0,
                }
            ],
        }
    )
    with opened(tmp_path) as events:
        workers = Workers(agent, events, HeldClock(begin_ms + waited_s * 1000), random.Random(1))
        tasks = [asyncio.create_task(run()) for run in (await workers.open()).values()]
        try:
            heat = events.stream("heat")
            await heat.accepted(
                heat.append_all([(begin_ms, {"x": 90}), (begin_ms + 60_000, {"x": 20})])
            )
            await until(
                lambda: (
                    sum(
                        workers.counts()["actions"]["siren"][name]
                        for name in ("done", "expired", "failed")
                    )
                    == 1
                )
            )
            assert workers.counts()["actions"]["siren"][outcome] == 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def test_only_alerts_that_it_is_for_and_only_those_after_it_was_declared(
    tmp_path: Path,
) -> None:
    server = Server()
    with server.running() as url, opened(tmp_path) as events:
        await raised(events, 0)
        async with runs(events, config(type="webhook", url=url, when="n % 2 = 0")) as runner:
            await raised(events, 1, 2, 3, 4)
            await until(lambda: runner.counts()["done"] == 2)
    assert [json.loads(body)["n"] for _, _, body in server.requests] == [2, 4]


async def test_while_nobody_is_there_an_alert_waits_until_it_is_too_old(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    clock = HeldClock(SystemClock().now_ms())
    with opened(tmp_path) as events:
        async with runs(
            events,
            config(type="webhook", url=f"http://127.0.0.1:{port}/", expire_s=60),
            clock=clock,
        ) as runner:
            await raised(events, 1)
            for _ in range(3):
                await until(lambda: clock.wakes)
                assert "nothing listens there" in runner.counts()["error"]
                clock.advance(15)
            await until(lambda: clock.wakes)
            clock.advance(60)
            await until(lambda: runner.counts()["expired"] == 1)
            assert (runner.counts()["done"], runner.counts()["failed"]) == (0, 0)


async def test_the_next_alert_is_acted_on_when_somebody_is_there_again(tmp_path: Path) -> None:
    server = Server()
    with server.running() as url, opened(tmp_path) as events:
        async with runs(events, config(type="webhook", url=url)) as runner:
            server.status = 500
            await raised(events, 1)
            await until(lambda: runner.counts()["failed"] == 1)
            server.status = 200
            await raised(events, 2)
            await until(lambda: runner.counts()["done"] == 1)
            assert runner.counts()["error"] is None
    assert [json.loads(body)["n"] for _, _, body in server.requests] == [1, 2], (
        "what failed is not tried again"
    )


async def test_a_flood_waits_in_the_log_and_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    clock = HeldClock(SystemClock().now_ms())
    server = Server()
    with (
        server.running() as url,
        opened(
            tmp_path,
            config=LogConfig(linger_ms=0, reserve_bytes=0, consumer_bytes=2_000),
            local=frozenset({"alerts"}),
        ) as events,
    ):
        async with runs(events, config(type="webhook", url=url, pause_s=1), clock=clock) as runner:
            for n in range(0, 10_000, 100):
                await raised(events, *range(n, n + 100))
            for seconds in range(1, 4):
                await until(lambda: runner.counts()["done"] == seconds and clock.wakes)  # noqa: B023
                assert len(server.requests) == seconds, "one a second"
                clock.advance(1)
            clock.advance(3600)
            await until(
                lambda: (
                    sum(runner.counts()[name] for name in ("done", "expired", "missed")) == 10_000
                )
            )
            assert runner.counts()["missed"] > 0


async def test_what_hangs_or_breaks_harms_no_other(tmp_path: Path) -> None:
    server = Server()
    hanging = config(type="command", command=["/bin/sleep", "600"], name="hanging", timeout_s=3600)
    with server.running() as url, opened(tmp_path) as events:
        broken = config(type="command", command=["/not-there"], name="broken")
        async with (
            runs(events, hanging) as one,
            runs(events, broken) as two,
            runs(events, config(type="webhook", url=url)) as three,
        ):
            await raised(events, *range(20))
            await until(lambda: three.counts()["done"] == 20 and two.counts()["failed"] == 20)
            assert "FileNotFoundError" in two.counts()["error"]
            assert one.counts()["done"] == one.counts()["failed"] == 0
    with opened(tmp_path) as events:
        async with runs(events, hanging) as one:
            assert one.counts()["unknown"] == 0, "it is counted when it is read"
            await until(lambda: one.counts()["unknown"] == 1)


async def test_what_takes_too_long_failed(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        async with runs(
            events, config(type="command", command=["/bin/sleep", "600"], timeout_s=0.1)
        ) as runner:
            await raised(events, 1, 2)
            await until(lambda: runner.counts()["failed"] == 2)
            assert runner.counts()["error"] == "not done within 0.1 s"


async def test_an_action_that_is_no_longer_configured_holds_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        async with runs(events, config(type="command", command=["/bin/true"])):
            await until(lambda: PREFIX + "siren" in events.consumers())
        await Actions((), "d", events, SystemClock(), None).forget_others()  # type: ignore[arg-type]
        assert events.consumers() == frozenset()


class Listener:
    """Who subscribed at a broker."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def take(self, packet: mqtt5.PublishPacket) -> bool:
        """As `on_message`."""
        self.came.append(packet)
        return False

    async def listen(self, port: int, topic: str) -> MqttLink:
        link = await connect(
            BrokerConfig(port=port),
            None,
            lambda: MqttLink(on_message=self.take, on_puback=lambda _id, _code: None),
        )
        await link.open("listener", BrokerConfig(port=port), keepalive_s=10, asked_s=10, will=None)
        await link.subscribe(topic)
        return link
