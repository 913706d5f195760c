"""The inbox: kept before it is confirmed, done once, whatever ends the agent; through a real
broker.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from edgewake.edge.config import AgentConfig
from edgewake.edge.downlink.config import CommandConfig, DownlinkConfig
from edgewake.edge.downlink.downlink import Downlink
from edgewake.edge.downlink.inbox import (
    BAD_PAYLOAD,
    INBOX,
    QUOTA_EXCEEDED,
    SUCCESS,
    WAITING_MAX,
    Inbox,
)
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import Failpoint, no_failpoint
from edgewake.edge.log.mode import LogMode
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.edge.uplink.sender import Uplink
from edgewake.protocol import topics
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.downlink import ANSWERS, REPLIES
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from tests.edge.downlink import inbox_crash
from tests.edge.downlink.cloud import answered, publish
from tests.edge.helpers import opened, put
from tests.edge.odd_broker import odd_broker
from tests.edge.peer import Peer
from tests.services import PATIENCE_S, Mosquitto

ECHO = {"echo": CommandConfig(argv=("/bin/echo",), args_max=1)}
COMMAND = {"id": "a", "name": "echo", "args": ["hi"]}


class Device:
    """A log, its downlink and its uplink, as the agent has them."""

    def __init__(self, config: AgentConfig, failpoint: Failpoint) -> None:
        clock = SystemClock()
        self.events = EventLog(
            config.data_dir,
            config.log,
            config.uplink,
            clock=clock,
            rng=random.Random(1),
            on_frames=lambda frames: self.uplink.hand_over(frames),
            failpoint=failpoint,
        )
        self.inbox = Inbox(self.events, clock, boot="boot")
        self.downlink = Downlink(config.downlink, self.inbox)
        status = DeviceStatus(device=config.device, state=DeviceState.ONLINE)
        self.uplink = Uplink(
            config,
            self.events,
            clock=clock,
            rng=random.Random(1),
            status=lambda: status,
            inbox=self.inbox,
        )

    async def until(self, count: str, least: int) -> None:
        """Wait for one of the inbox's counts."""
        async with asyncio.timeout(PATIENCE_S):
            while self.inbox.counts[count] < least:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def device(
    directory: Path,
    port: int,
    name: str,
    commands: Mapping[str, CommandConfig] = ECHO,
    *,
    mode: LogMode = LogMode.HML,
    failpoint: Failpoint = no_failpoint,
) -> AsyncIterator[Device]:
    config = AgentConfig(
        device=name,
        data_dir=directory,
        mqtt=BrokerConfig(port=port),
        log=LogConfig(mode=mode, reserve_bytes=0, linger_ms=0),
        uplink=UplinkConfig(backoff_min_s=0.05, backoff_max_s=0.2),
        downlink=DownlinkConfig(command=dict(commands)),
    )
    one = Device(config, failpoint)
    await one.inbox.open()
    sending, doing = asyncio.create_task(one.uplink.run()), asyncio.create_task(one.downlink.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not one.uplink.session.sends:
                await asyncio.sleep(0.01)
        yield one
    finally:
        doing.cancel()
        await asyncio.wait({doing})
        one.uplink.drain()
        await asyncio.wait_for(sending, 10)
        await asyncio.to_thread(one.events.close)


async def test_a_command_is_kept_done_and_answered_once_however_often_it_comes(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    async with Peer(mosquitto.port) as peer:
        async with device(tmp_path, mosquitto.port, "down-1") as one:
            for _ in range(3):
                publish(peer, "down-1", "command", COMMAND)
            done = [
                {
                    "id": "a",
                    "kind": "command",
                    "state": "done",
                    "name": "echo",
                    "exit_code": 0,
                    "output": "hi\n",
                }
            ]
            assert await answered(peer, "down-1", 1) == done
            await one.until("repeated", 2)
            publish(peer, "down-1", "command", COMMAND)
            await one.until("repeated", 3)
            publish(peer, "down-1", "command", {"id": "b", "name": "reboot"})
            assert [answer["state"] for answer in await answered(peer, "down-1", 2)] == [
                "done",
                "refused",
            ]
        async with device(tmp_path, mosquitto.port, "down-1"):  # the next life knows it, too
            publish(peer, "down-1", "command", COMMAND)
            publish(peer, "down-1", "command", {"id": "c", "name": "echo"})
            assert [answer["id"] for answer in await answered(peer, "down-1", 3)] == ["a", "b", "c"]


@pytest.mark.parametrize("mode", [LogMode.SBML, LogMode.NONE])
async def test_a_command_is_done_and_answered_in_the_modes_that_log_later_or_not_at_all(
    tmp_path: Path, mosquitto: Mosquitto, mode: LogMode
) -> None:
    name = f"down-{mode}"
    async with Peer(mosquitto.port) as peer, device(tmp_path, mosquitto.port, name, mode=mode):
        publish(peer, name, "command", COMMAND)
        assert [answer["state"] for answer in await answered(peer, name, 1)] == ["done"]


async def test_hostile_messages_are_refused_and_the_next_one_is_done(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    async with Peer(mosquitto.port) as peer, device(tmp_path, mosquitto.port, "down-2") as one:
        for payload in (b"", b"\xff" * 70_000, b'{"id":"../x","name":"echo"}'):
            publish(peer, "down-2", "command", payload)
        publish(peer, "down-2", "format_disk", COMMAND)
        publish(peer, "down-2", "command", COMMAND, expires_s=None)
        publish(peer, "down-2", "command", COMMAND | {"id": "good"})
        assert [answer["id"] for answer in await answered(peer, "down-2", 1)] == ["good"]
        assert one.inbox.counts["refused"] == 5


async def test_what_waited_behind_a_long_command_for_too_long_is_not_done(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    slow = {"slow": CommandConfig(argv=("/bin/sleep", "2"))}
    async with (
        Peer(mosquitto.port) as peer,
        device(tmp_path, mosquitto.port, "down-3", ECHO | slow),
    ):
        publish(peer, "down-3", "command", {"id": "first", "name": "slow"})
        publish(peer, "down-3", "command", COMMAND, expires_s=1)
        found = await answered(peer, "down-3", 2)
        assert [(answer["id"], answer["state"]) for answer in found] == [
            ("first", "done"),
            ("a", "expired"),
        ]


async def test_at_the_bound_the_broker_is_told_and_nothing_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        inbox, told = Inbox(events, SystemClock(), boot="boot"), list[int]()
        await inbox.open()
        for n in range(WAITING_MAX + 1):
            inbox.take("command", orjson.dumps(COMMAND | {"id": f"i{n}"}), 60, told.append)
        inbox.take("command", b"{", 60, told.append)
        async with asyncio.timeout(PATIENCE_S):
            while len(told) < WAITING_MAX + 2:
                await asyncio.sleep(0.01)
        assert Counter(told) == {SUCCESS: WAITING_MAX, QUOTA_EXCEEDED: 1, BAD_PAYLOAD: 1}
        assert inbox.counts == {"taken": WAITING_MAX, "put_off": 1, "refused": 1}


async def test_it_is_confirmed_when_it_is_durable_and_not_before(tmp_path: Path) -> None:
    reached: list[str] = []
    confirmed_after: list[list[str]] = []
    with opened(tmp_path, failpoint=reached.append) as events:
        inbox = Inbox(events, SystemClock(), boot="boot")
        await inbox.open()
        reached.clear()
        inbox.take(
            "command",
            orjson.dumps(COMMAND),
            60,
            lambda _reason: confirmed_after.append(list(reached)),
        )
        async with asyncio.timeout(PATIENCE_S):
            while not confirmed_after:
                await asyncio.sleep(0.001)
    assert "committed" in confirmed_after[0]


async def test_the_broker_gets_its_puback_when_the_message_is_durable_and_not_before(
    tmp_path: Path,
) -> None:
    """The disk is held up while the message is written; a hostile one behind it is refused
    meanwhile, so the connection was not held up.
    """
    is_slow, goes_on = threading.Event(), threading.Event()

    def hold(place: str) -> None:
        if place == "inserted" and is_slow.is_set():
            assert goes_on.wait(PATIENCE_S)

    topic = topics.down("dev", "command")
    async with odd_broker() as broker, device(tmp_path, broker.port, "dev", failpoint=hold) as one:
        is_slow.set()
        broker.send(topic, orjson.dumps(COMMAND), 77)
        broker.send(topic, b"{", 78)
        await broker.until(lambda: broker.pubacks)
        taken, meanwhile = one.inbox.counts["taken"], list(broker.pubacks)
        goes_on.set()
        assert (taken, meanwhile) == (1, [(78, BAD_PAYLOAD)])
        await broker.until(lambda: len(broker.pubacks) == 2)
        assert broker.pubacks[1] == (77, SUCCESS)


def test_the_inbox_stays_on_the_device_and_goes_when_it_is_done(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        reader = events.open_consumer("reader", [INBOX])
        put(events, range(50), INBOX)
        held = events.status()
        assert (held.backlog_readings, held.stored_bytes > 0, held.oldest_at) == (0, True, None)
    with opened(tmp_path, boot="another") as events:  # a new epoch leaves it where it is
        reader = events.open_consumer("reader", [INBOX])
        assert events.status().stored_bytes == held.stored_bytes
        chunk = reader.poll()
        assert sum(len(item.readings) for item in chunk.items) == 50  # type: ignore[union-attr]
        reader.submit(chunk.cursor).result(20)
        assert events.status().stored_bytes == 0


# kill -9

KILLS = [
    ("received", 2),
    ("inserted", 3),
    ("committed", 4),
    ("", 0),
    ("accepted", 3),
    ("inserted", 6),
]
"""Place and passage; without a place the command `die` ends the life."""


def life(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.edge.downlink.inbox_crash", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def told(output: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """All answers, and all replies that were kept."""
    found = orjson.loads(output)
    return [one for one in found if one["stream"] == ANSWERS], [
        one for one in found if one["stream"] == REPLIES
    ]


def effects(directory: Path) -> Counter[str]:
    return Counter((directory / "effects").read_text().split())


@pytest.mark.services
def test_kills_anywhere_leave_each_command_answered_once_and_done_at_most_once(
    tmp_path: Path,
) -> None:
    for place, nth in KILLS:
        ended = life(tmp_path, *(["--kill", place, str(nth)] if place else []))
        assert ended.returncode == -signal.SIGKILL, (place, nth, ended.stderr[-2000:])
    last = life(tmp_path)
    assert last.returncode == 0, last.stderr[-2000:]
    answers, replies = told(last.stdout)
    found = [answer for answer in answers if answer["kind"] == "command"]
    assert Counter(answer["id"] for answer in found) == Counter(
        f"id-{n}" for n in range(inbox_crash.N)
    )
    assert Counter(answer["id"] for answer in answers) - Counter(
        answer["id"] for answer in found
    ) == Counter(f"reply-{n}" for n in range(inbox_crash.REPLIES_N))
    assert sorted((reply["id"], reply["body"]) for reply in replies) == [
        (str(n), f"reply-{n}") for n in range(inbox_crash.REPLIES_N)
    ]
    states = {answer["id"]: answer["state"] for answer in found}
    assert states[inbox_crash.DIES] == "interrupted"
    assert set(states.values()) <= {"done", "interrupted"}
    ran = effects(tmp_path)
    assert max(ran.values()) == 1
    assert ran[inbox_crash.DIES] == 1
    assert {key for key, state in states.items() if state == "done"} <= ran.keys()


@pytest.mark.long
@pytest.mark.services
def test_a_broker_that_is_told_too_soon_loses(tmp_path: Path) -> None:
    """The control: what was confirmed before it was durable is gone with the process."""
    assert life(tmp_path, "--hasty", "--kill", "received", "1").returncode == -signal.SIGKILL
    for _ in range(2):
        last = life(tmp_path, "--hasty")
    assert last.returncode == 0, last.stderr[-2000:]
    assert len(told(last.stdout)[0]) < inbox_crash.N + inbox_crash.REPLIES_N


@pytest.mark.services
def test_without_the_note_that_it_was_begun_it_is_done_again(tmp_path: Path) -> None:
    """The other control."""
    for _ in range(2):
        assert life(tmp_path, "--forgetful").returncode == -signal.SIGKILL
    assert effects(tmp_path)[inbox_crash.DIES] == 2


@pytest.mark.long
@pytest.mark.services
def test_a_reply_that_is_not_kept_together_with_the_note_of_it_is_kept_twice(
    tmp_path: Path,
) -> None:
    """The third control."""
    assert life(tmp_path, "--apart", "--kill", "apart", "1").returncode == -signal.SIGKILL
    assert life(tmp_path).returncode == -signal.SIGKILL, "the command `die`"
    _, replies = told(life(tmp_path).stdout)
    assert sorted(reply["id"] for reply in replies) == ["0", "0", "1", "2", "3"]
