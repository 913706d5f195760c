"""Bridges that die, freeze or share a name: nothing that the broker or we confirmed is lost, and
nobody waits for the dead.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition

from edgewake.cloud.commands.device_commands import command, config
from edgewake.cloud.commands.requests import reply, requests
from edgewake.cloud.kafka import clients
from edgewake.edge.commands.cli import agent as device_agent
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import Gap
from tests.access.world import key_file, server
from tests.bridge.fleet import DEVICES, Fleet, until
from tests.bridge.running import Device, World, read, sequenced, start
from tests.house.source import ROOT
from tests.ops.service import KEY, Ops, running
from tests.services import PATIENCE_S, Process, free_ports, part, port_is_open

MINUTE = time.time_ns() // 60_000_000_000 * 60_000 - 3_600_000
"""Begins one, in UTC, an hour ago: of what comes a month late minutes are not kept any more."""
BEFORE, AFTER = 40, 200
"""Messages of each device before and after the fault."""
SENT_DOWN = 'edgewake_bridge_sent_down_total{kind="message"}'
ADOPTED = 'edgewake_bridge_adopted_total{kind="session"}'


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Process.kill, id="killed", marks=pytest.mark.long),
        pytest.param(Process.freeze, id="frozen"),
    ],
)
async def test_a_bridge_that_is_gone_for_good_delays_nobody_and_loses_nothing(
    here: World, fault: Callable[[Process], None]
) -> None:
    """Without its session's adoption the frames would wait for the devices' own patience, the plain
    readings for ever: see the control.
    """
    run = fault.__name__
    gone, survivor = here.bridge(f"b-{run}-1"), f"b-{run}-2"
    here.bridge(survivor)
    here.sequencer()
    fleet = Fleet(here, run)
    await fleet.connected()
    await fleet.send(BEFORE)
    await until(
        lambda: here.metric(survivor, "edgewake_bridge_others") == 1, "the bridges know each other"
    )
    fault(gone)
    try:
        await fleet.send(AFTER)
        await fleet.all_arrived()
        await until(lambda: here.metric(survivor, ADOPTED) == 1, "the emptied session is ended")
        for device in fleet.agents:
            assert await sequenced(here, device.stream, device.name, fleet.sent) == list(
                range(1, fleet.sent + 1)
            ), "a gap or a repeat"
    finally:
        if fault is Process.freeze:
            gone.thaw()
    if fault is Process.freeze:
        await until(
            lambda: here.metric(survivor, "edgewake_bridge_others") == 1,
            "the thawed bridge serves again",
        )
        await fleet.send(BEFORE)
        await fleet.all_arrived()
    assert gone.is_running() is (fault is Process.freeze)


@pytest.mark.long
async def test_the_control_without_adoption_loses_and_delays(here: World) -> None:
    """The survivor does not know the dead bridge's session: it is registered for another broker."""
    gone = here.bridge("b-control-1", site="elsewhere")
    here.bridge("b-control-2")
    fleet = Fleet(here, "control")
    await fleet.connected()
    await fleet.send(BEFORE)
    await fleet.all_arrived()
    gone.kill()
    await fleet.send(AFTER)
    await fleet.confirmed()
    await until(
        lambda: here.metric("b-control-2", "edgewake_bridge_inflight_messages") == 0,
        "the survivor is idle",
    )
    missing, unacknowledged = await fleet.missing(), fleet.unacknowledged()
    assert missing + unacknowledged == DEVICES * AFTER, (
        "half of all messages were dealt to the dead bridge"
    )
    assert missing
    assert unacknowledged


@pytest.mark.long
async def test_sessions_of_dead_bridges_are_emptied_by_the_first_that_comes_under_another_name(
    here: World,
) -> None:
    dead = [here.bridge("b-all-1"), here.bridge("b-all-2")]
    fleet = Fleet(here, "all")
    await fleet.connected()
    await fleet.send(1)
    await fleet.all_arrived()
    for bridge in dead:
        bridge.kill()
    await fleet.send(AFTER)
    await fleet.confirmed()
    assert await fleet.missing() == DEVICES * AFTER
    here.bridge("b-all-3")
    await fleet.all_arrived()
    await until(lambda: here.metric("b-all-3", ADOPTED) == 2, "both sessions are ended")

    def rows() -> list[bytes | None]:
        found = {one.key(): one.value() for one in read(here.config, topics.BRIDGES)}
        return [found[key] for key in (b"here|b-all-1", b"here|b-all-2")]

    await until(lambda: rows() == [None, None], "they are forgotten")


@pytest.mark.long
async def test_a_bridge_that_restarts_gets_its_session_back_and_the_others_adopt_nothing_for_ever(
    here: World,
) -> None:
    first = here.bridge("b-again-1")
    here.bridge("b-again-2")
    fleet = Fleet(here, "again")
    await fleet.connected()
    for _ in range(2):
        first.kill()
        await fleet.send(BEFORE)
        start(first)
    await fleet.send(BEFORE)
    await fleet.all_arrived()
    await until(
        lambda: here.metric("b-again-2", "edgewake_bridge_others") == 1, "it is heard again"
    )


async def test_of_two_bridges_of_one_name_the_one_that_started_first_ends(here: World) -> None:
    older = here.bridge("b-twin")
    device = Device(here, "twin-1", "twin")
    await device.send(10)
    newer = here.bridge("b-twin")
    await until(lambda: not older.is_running(), "the older process ends")
    assert older.stop() == 1
    assert "another bridge has started under our name" in older.output()
    await device.send(50)
    assert newer.is_running()
    here.parts.remove(older)


@pytest.mark.long
async def test_a_command_reaches_a_device_that_slept_although_the_bridge_and_the_api_were_killed(
    here: World, tmp_path: Path
) -> None:
    """On the real parts: asked by the API, sent by a bridge, kept and done by an agent, answered
    through the sequencer.
    """
    bridge = here.bridge("b-down-1")
    here.sequencer()
    effects, file = tmp_path / "effects", tmp_path / "agent.toml"
    file.write_text(
        f'device = "sleeper"\ndata_dir = "{tmp_path}/agent"\n[mqtt]\nport = {here.broker.port}\n'
        '[downlink]\nsettings = true\n[downlink.command.note]\nargv = ["/bin/sh", "-c", "echo $0 '
        f'>>{effects};echo noted"]\nargs_max=1\n'
    )
    path, body = "/v1/devices/sleeper/commands", {"name": "note", "args": ["first"], "id": "mine"}

    def state(api: Ops, which: str) -> Callable[[], bool]:
        return lambda: api.client.get(f"{path}/{which}").json()["state"] == "done"

    with running(here.node.bootstrap, tmp_path) as api:
        assert api.client.post(path, json=body).json()["state"] == "waiting"
        assert api.client.post(path, json=body).status_code == 202, "asked twice, it is one thing"
        assert api.client.post(path, json=body | {"args": ["other"]}).json()["title"] == "id in use"
        await until(lambda: here.metric("b-down-1", SENT_DOWN) == 1, "it was sent to nobody")
        bridge.kill()
        start(bridge)
        with part("agent", file, tmp_path / "agent.log"):
            await until(state(api, "mine"), "it is done after the device woke")
            api.process.kill()
            start(api.process)
            await until(lambda: api.client.get("/readyz").status_code == 200, "the API is back")
            found = CliRunner().invoke(
                command,
                ["sleeper", "note", "second", "--wait", "--json", "--ops", api.url, "--key", KEY],
            )
            assert found.exit_code == 0, found.output
            answer = json.loads(found.output)["answer"]
            assert (answer["state"], answer["exit_code"], answer["output"]) == (
                "done",
                0,
                "noted\n",
            )
            wanted = tmp_path / "settings.toml"
            wanted.write_text("uplink.status_interval_s = 0.5\n")
            options = ["--ops", api.url, "--key", KEY]
            given = CliRunner().invoke(
                config, [*options, "set", "sleeper", str(wanted), "--wait", "--json"]
            )
            assert given.exit_code == 0, given.output
            assert [json.loads(given.output)[name] for name in ("state", "version")] == ["done", 1]
            shown = CliRunner().invoke(config, [*options, "get", "sleeper", "--json"])
            assert json.loads(shown.output)["text"] == wanted.read_text()
            await until(
                lambda: api.client.get("/v1/devices/sleeper").json()["settings_version"] == 1,
                "its status says so, too",
            )
            wanted.write_text("device = 'other'\n")
            given = CliRunner().invoke(config, [*options, "set", "sleeper", str(wanted), "--wait"])
            assert (given.exit_code, "may not be set from afar: device" in given.output) == (
                1,
                True,
            ), given.output
            refused = CliRunner().invoke(
                command, ["sleeper", "reboot", "--wait", "--ops", api.url, "--key", KEY]
            )
            assert (refused.exit_code, "no command 'reboot' is allowed" in refused.output) == (
                1,
                True,
            ), refused.output
        assert api.client.get(f"{path}/mine").json()["answer"]["output"] == "noted\n"
        listed = api.client.get(path).json()
        assert [(item["name"], item["state"]) for item in listed["items"]] == [
            ("reboot", "refused"),
            ("note", "done"),
            ("note", "done"),
        ]
    assert effects.read_text() == "first\nsecond\n"


def example(directory: Path) -> Path:
    """The program that serves requests, as docs/downlink.md has it."""
    text = (ROOT / "docs" / "downlink.md").read_text()
    (block,) = re.findall(r"```python\n(# serve_routes\.py\n.*?)```", text, re.DOTALL)
    file = directory / "serve_routes.py"
    file.write_text(block)
    return file


def sketched(directory: Path) -> str:
    """Tables of two streams with the same 300 numbers, 0 to 299, in three minutes: one is summed up
    instead, one beside.
    """
    text = "".join(f'{{"t": {MINUTE + 600 * n}, "db": {n}}}\n' for n in range(301))
    tables = ""
    for stream, source, sketch in (("hidden", "send = false", ""), ("shown", "", "beside = true")):
        lines = directory / f"{stream}.jsonl"
        lines.write_text(text)
        tables += (
            f'[[source]]\ntype = "file_tail"\npath = "{lines}"\nstream = "{stream}"\n{source}\n'
        )
        tables += (
            '[[sketch]]\nfields = ["db"]\nkinds = ["numbers", "kll"]\nstream = '
            f'"{stream}"\n{sketch}\n'
        )
    return tables


def summed_up(api: Ops, stream: str, devices: str) -> tuple[int, float | None, bool] | None:
    """Readings, sum and whether the median is about right; None where nothing is known of them."""
    words: dict[str, str | int] = {
        "from": MINUTE,
        "to": MINUTE + 180_000,
        "devices": devices,
        "quantile": "0.5",
    }
    found = api.client.get(f"/v1/summaries/{stream}/db", params=words)
    if found.status_code == 404:
        return None
    (row,) = found.json()["rows"]
    figures = row["figures"]
    return (
        figures["readings"],
        figures["sum"],
        [abs(median["value"] - 149) <= 8 for median in row["quantiles"]] == [True],
    )


@pytest.mark.long
async def test_a_device_asks_and_hears_once_although_everything_in_between_was_killed(
    here: World, tmp_path: Path
) -> None:
    """On the real parts: asked on the device, answered in the cloud by the program of the documents
    while the device is gone. Beside it the device sends sketches, which a question about summaries
    finds, each number once.
    """
    bridge = here.bridge("b-ask-1")
    here.sequencer()
    (port,) = free_ports(1)
    file = tmp_path / "agent.toml"
    file.write_text(
        f'device = "asker"\ndata_dir = "{tmp_path}/agent"\n[mqtt]\nport = '
        f"{here.broker.port}\n[downlink]\nrequests = true\n"
        f'[[source]]\ntype = "http_intake"\nstream = "device_requests"\nport = {port}\n'
        + sketched(tmp_path)
    )

    def asks(key: str, name: str) -> None:
        body = {"id": key, "name": name, "body": "to the depot"}
        assert httpx.post(f"http://127.0.0.1:{port}/", json=body, timeout=PATIENCE_S).json() == {
            "taken": 1,
            "refused": 0,
        }

    def shown(api: Ops) -> dict[str, tuple[str, str | None, bool]]:
        items = api.client.get("/v1/requests", params={"device": "asker"}).json()["items"]
        return {
            one["id"]: (
                one["state"],
                one["reply"] or one["detail"],
                one["delivered_at"] is not None,
            )
            for one in items
        }

    with running(here.node.bootstrap, tmp_path, 'requests = ["map", "route"]\n') as api:
        with part("agent", file, tmp_path / "agent.log") as agent:
            await until(lambda: port_is_open(port), "it takes requests")
            asks("r1", "route")
            asks("r2", "tea")
            asks("r3", "map")
            await until(lambda: len(shown(api)) == 3, "all are read")
            agent.kill()
        api.process.kill()
        bridge.kill()
        start(api.process)
        start(bridge)
        await until(lambda: api.client.get("/readyz").status_code == 200, "the API is back")
        environment = {"OPS": api.url, "KEY": KEY, "PATH": "/usr/bin"}
        with Process(
            [sys.executable, str(example(tmp_path))], tmp_path / "serve.log", env=environment
        ):
            await until(lambda: shown(api)["r1"][0] == "answered", "the program answers")
        options = ["--ops", api.url, "--key", KEY, "--json"]
        waiting = CliRunner().invoke(requests, [*options, "--state", "open"])
        assert [(one["id"], one["name"]) for one in json.loads(waiting.stdout)] == [("r3", "map")]
        assert (
            CliRunner().invoke(reply, [*options, "asker", "r3", "--refuse", "no paper"]).exit_code
            == 0
        )
        other = CliRunner().invoke(reply, [*options, "asker", "r3", "a map"])
        assert (other.exit_code, "which cannot be changed" in other.output) == (1, True), (
            other.output
        )
        with part("agent", file, tmp_path / "agent.log"):
            await until(lambda: port_is_open(port), "it takes requests again")
            asks("r1", "route")  # its program did not hear that it was taken
            await until(
                lambda: all(is_delivered for _, _, is_delivered in shown(api).values()),
                "the device has the replies",
            )
            assert shown(api) == {
                "r1": ("answered", "12.4 km to the depot", True),
                "r2": ("refused", "nobody serves 'tea'; served: map, route", True),
                "r3": ("refused", "no paper", True),
            }
            whole = 300, sum(range(300)), True
            await until(
                lambda: summed_up(api, "hidden", "") == summed_up(api, "shown", "@asker") == whole,
                "the sketches are merged",
            )
            assert summed_up(api, "shown", "") is None, (
                "the readings themselves are summed up by the analysis, and by nobody twice"
            )
            found = CliRunner().invoke(
                device_agent, ["requests", "--config", str(file), "r1", "--wait", str(PATIENCE_S)]
            )
            assert (found.exit_code, json.loads(found.stdout)["body"]) == (
                0,
                "12.4 km to the depot",
            ), found.output


@pytest.mark.long
async def test_a_device_follows_another_one_and_goes_on_where_it_was_killed(
    here: World, tmp_path: Path
) -> None:
    """On the real parts; what the follower keeps it sends on, so the cloud shows what it has: each
    reading once, in order.
    """
    with server(tmp_path, here.config, key_file(tmp_path)) as access:
        bridge = here.bridge(
            "b-feed-1", feed=f'{{ access_urls = ["{access.url}"], streams = ["lead"] }}'
        )
        here.sequencer()
        file = tmp_path / "agent.toml"
        follow = '[[source]]\ntype = "subscription"\nbegin = "earliest"\n'
        file.write_text(
            f'device = "follower"\ndata_dir = "{tmp_path}/agent"\n[mqtt]\nport = '
            f"{here.broker.port}\n"
            f'{follow}stream = "echo"\nfollow = ["lead"]\nwhere = "speed > 100"\n{follow}stream = '
            '"forbidden"\nfollow = ["down_answers"]\n'
        )
        leader = Device(here, "leader", "lead")
        for last in (400, 700):
            agent = part("agent", file, tmp_path / "agent.log")
            with agent:
                if last == 400:  # at first there is no such stream yet
                    await asyncio.to_thread(agent.wait_for, "no stream or query is named 'lead'")
                    await leader.send(100)
                await until(lambda: shown_by(here), "something came")
                await leader.send(last)
                agent.kill()
            bridge.kill()
            start(bridge)
        with part("agent", file, tmp_path / "agent.log") as agent:
            wanted = [float(n) for n in range(101, 1401)]
            await until(lambda: len(shown_by(here)) >= len(wanted), "all came")
            assert shown_by(here) == wanted
            assert "not for devices: down_answers" in agent.output()
            agent.kill()
        await leader.send(750)
        kept_from = 741
        passed_over = await asyncio.to_thread(forget, here, "lead", kept_from)
        access.process.kill()  # it still had in memory what Kafka has no more
        access.restart_after_kill()
        with part("agent", file, tmp_path / "agent.log") as agent:
            wanted += [float(n) for n in range(2 * kept_from - 1, 1501)]
            await until(lambda: len(shown_by(here)) >= len(wanted), "what is kept came")
            assert shown_by(here) == wanted
            (gap,) = gaps_of(here)
            assert gap.reason == "not_kept"
            assert passed_over <= gap.count <= 2 * passed_over, (
                "Kafka's records, and the markers of its transactions"
            )
            (said,) = (
                line
                for line in map(json.loads, agent.output().splitlines())
                if line.get("event") == "feed.gap"
            )
            assert (said["gap"]["reason"], said["gap"]["stream"], said["gap"]["lost"]) == (
                "retention",
                "lead",
                gap.count,
            )
            assert said["gap"]["from"] + gap.count == said["gap"]["earliest"]
            assert agent.stop() == 0


def forget(world: World, stream: str, before: int) -> int:
    """Let retention pass: Kafka keeps nothing before this frame. How many of its records nobody has
    read go with it.
    """
    records = read(world.config, topics.stream_topic(stream), device="leader")
    first = next(one for one in records if (record.decode(one.value()).frame.frame or 0) == before)
    client = clients.admin(world.config)  # must live until the answer comes
    end = TopicPartition(topics.stream_topic(stream), first.partition(), first.offset())
    for done in client.delete_records([end]).values():
        done.result(PATIENCE_S)
    return before - 701


def gaps_of(world: World) -> list[Gap]:
    """What the follower said of what it lost, as the cloud has it."""
    frames = [
        record.decode(one.value()).frame
        for one in read(world.config, topics.stream_topic("echo"), device="follower")
    ]
    return [frame.gap for frame in frames if frame.gap is not None]


def shown_by(world: World) -> list[float]:
    """What the follower sent of the leader's readings, as the cloud has it."""
    messages = read(world.config, topics.stream_topic("echo"), device="follower")
    readings = [
        one for message in messages for one in record.readings(record.decode(message.value()))
    ]
    assert {one["of_device"] for one in readings} <= {"leader"}
    return [one["speed"] for one in readings]
