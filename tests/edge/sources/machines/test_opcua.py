"""Redundant OPC UA servers, real ones as processes, that are killed: no reading is lost or taken
twice.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asyncua import Server, ua
from asyncua.client.ua_session import UaSession
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from cryptography.x509.oid import ExtendedKeyUsageOID

from edgewake.edge.sources.config import kind
from edgewake.edge.sources.machines import opcua
from edgewake.edge.sources.machines.opcua import TOLD_MAX, Change, OpcUa, OpcUaConfig, Told
from tests.edge.sources.cage import Caged, caged, configured, served
from tests.edge.sources.machines.redundant_opcua import STEP_MS
from tests.edge.sources.sink import MemorySink, context, intake_of
from tests.services import Process, free_ports, port_is_open

SERVER = Path(__file__).parent / "redundant_opcua.py"


def config(ports: list[int]) -> OpcUaConfig:
    urls = [f"opc.tcp://127.0.0.1:{port}/" for port in ports]
    found = kind("opcua").checked(
        {
            "type": "opcua",
            "stream": "s",
            "url": urls[0],
            "also": [{"url": url} for url in urls[1:]],
            "publish_s": 0.1,
            "timeout_s": 2.0,
            "node": [{"name": "n", "id": "ns=2;s=Counter.Value"}],
        }
    )
    assert isinstance(found, OpcUaConfig)
    return found


def server(folder: Path, port: int, first_ms: int) -> Process:
    command = [sys.executable, str(SERVER), str(port), str(first_ms)]
    return Process(command, folder / f"opcua-{port}-{time.monotonic_ns()}.log")


def numbers(one: Caged) -> list[int]:
    return [n for n in one.column("n") if isinstance(n, int) and n >= 0]


@pytest.mark.long
@pytest.mark.services
async def test_while_one_of_two_servers_lives_nothing_is_lost_or_taken_twice(
    tmp_path: Path,
) -> None:
    ports = list(free_ports(2))
    first_ms = int(time.time() * 1000)
    servers = [server(tmp_path, port, first_ms) for port in ports]
    for each in servers:
        each.start()
    try:
        async with caged(tmp_path / "log", config(ports)) as one:
            subscribed = [f"opc.tcp://127.0.0.1:{port}/: subscribed" for port in ports]
            await one.until(lambda: all(one.intake.remarks[each] for each in subscribed), "both")
            await _until_whole(one, first_ms)
            for killed, port, again in zip(servers, ports, subscribed, strict=True):
                before, times = len(numbers(one)), one.intake.remarks[again]
                killed.kill()
                await one.until(lambda port=port: not port_is_open(port), "it is dead")
                await one.until(lambda b=before: len(numbers(one)) > b + 100, "it goes on")
                assert any(f":{port}/: away" in what for what in one.intake.remarks)
                assert one.supervisor.state == "running"
                killed.start()
                # It is asked again after AGAIN_S, and tells once more what is known already. The
                # other one may only die when this one is subscribed to again.
                await one.until(
                    lambda a=again, n=times: one.intake.remarks[a] > n, "both are read again"
                )
                await _until_whole(one, first_ms)
            found = numbers(one)
    finally:
        for each in servers:
            each.kill()
    assert len(found) == len(set(found)), "a reading was taken twice"
    assert sorted(found) == list(range(min(found), max(found) + 1)), "a reading was lost"
    times = dict(zip(one.column("n"), one.times(), strict=True))
    assert all(times[n] == first_ms + n * STEP_MS for n in found)


async def _until_whole(one: Caged, first_ms: int) -> None:
    """Wait for all that the servers had until now: a server that dies takes along what it has not
    published yet, and one that is subscribed to since a moment ago never tells it.
    """
    now = (int(time.time() * 1000) - first_ms) // STEP_MS
    until = f"all readings up to {now}"

    def is_whole() -> bool:
        found = set(numbers(one))
        return bool(found) and max(found) >= now and found.issuperset(range(min(found), now))

    await one.until(is_whole, until)


async def test_without_any_server_the_source_fails_and_names_all(tmp_path: Path) -> None:
    ports = list(free_ports(2))
    async with caged(tmp_path, config(ports)) as one:
        for port in ports:
            await one.failed(f":{port}/")


T = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_change_is_known_by_its_moment_and_its_value() -> None:
    told = Told(TOLD_MAX)
    changes = [Change("a", 1, T), Change("a", 2, T), Change("b", 1, T), Change("a", 1, None)]
    assert [told.is_new(one) for one in changes] == [True] * 4
    assert [told.is_new(one) for one in changes] == [False] * 3 + [True]


def test_one_that_comes_late_from_a_slower_server_is_new_and_memory_is_bounded() -> None:
    told = Told(3)
    later, earlier = (Change("a", n, T + timedelta(seconds=n)) for n in (5, 4))
    assert told.is_new(later)
    assert told.is_new(earlier), "the server that was ahead never told it"
    for n in range(6, 9):
        assert told.is_new(Change("a", n, T + timedelta(seconds=n)))
    assert told.is_new(later), "control: forgotten"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"also": [{"url": "opc.tcp://a:4840/"}]}, "expected each server once"),
        ({"also": [{"url": "http://b/"}]}, "opc.tcp"),
    ],
)
def test_a_server_that_is_none_or_the_same_is_refused(more: dict[str, Any], why: str) -> None:
    values = {
        "type": "opcua", "stream": "s", "url": "opc.tcp://a:4840/",
        "node": [{"name": "n", "id": "ns=2;s=x"}],
    }  # fmt: skip
    with pytest.raises(ValueError, match=why):
        kind("opcua").checked(values | more)


@asynccontextmanager
async def opcua_server(port: int, certificates: Path | None = None) -> AsyncIterator[Any]:
    server = Server()
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
    if certificates is not None:
        server.set_security_policy([ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt])
        await server.load_certificate(str(certificates / "server.der"))
        await server.load_private_key(str(certificates / "server.pem"))
    await server.register_namespace("urn:test")
    boiler = await server.nodes.objects.add_object("ns=2;s=Boiler", "2:Boiler")
    value = await boiler.add_variable("ns=2;s=Boiler.Temperature", "2:Temperature", 20.5)
    state = await boiler.add_variable("ns=2;s=Boiler.State", "2:State", "idle")
    celsius = ua.EUInformation(UnitId=4_408_652, DisplayName=ua.LocalizedText("°C"))
    await value.add_property(ua.NodeId(), "0:EngineeringUnits", celsius)
    async with server:
        yield value, state


NODES = [
    {"name": "temperature", "id": "ns=2;s=Boiler.Temperature"},
    {"name": "state", "id": "ns=2;s=Boiler.State"},
]


async def test_changes_of_a_server_come_with_their_times_and_after_it_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opcua, "RESUME_S", 0.5)
    (port,) = free_ports(1)
    keys = {
        "url": f"opc.tcp://127.0.0.1:{port}/", "publish_s": 0.05,
        "node": [*NODES, {"name": "gone", "id": "ns=2;s=no"}],
    }  # fmt: skip
    moment = datetime(2026, 3, 1, 8, 15, 30, tzinfo=UTC)
    async with caged(tmp_path, configured("opcua", **keys)) as one:
        await one.failed("opc.tcp")
        async with opcua_server(port) as (value, state):
            await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
            for number in range(5):
                at = moment + timedelta(seconds=number)
                variant = ua.Variant(21.5 + number, ua.VariantType.Double)
                await value.write_value(ua.DataValue(variant, SourceTimestamp=at))
                await one.until(lambda n=number: 21.5 + n in one.column("temperature"), "a change")
            await state.write_value("heating")
            await one.until(lambda: "heating" in one.column("state"), "the state")
        assert one.units() == {"temperature": "°C"}, "as its server says"
        start_ms = int(moment.timestamp() * 1000)
        changed = dict(zip(one.column("temperature"), one.times(), strict=True))
        assert [changed[21.5 + number] for number in range(5)] == [
            start_ms + 1000 * number for number in range(5)
        ]
        assert any("gone" in what for what in one.intake.remarks)
        failures = one.supervisor.failures
        await one.until(lambda: one.supervisor.failures > failures, "the loss")
        async with opcua_server(port) as (value, _):
            await one.until(lambda: one.column("temperature").count(20.5) == 2, "it is back")
            assert one.events.status().lost == {"away": 1}, "who knows what changed meanwhile"
            await value.write_value(99.5)
            await one.until(lambda: 99.5 in one.column("temperature"), "a change")


class Door:
    """A way to a port of this machine that can be shut, which cuts who came by it."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self._is_shut = False
        self.refused = 0

    def shut(self) -> None:
        self._is_shut = True
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        self._is_shut = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_shut:
            self.refused += 1
            return
        answers, upstream = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, upstream]
        try:
            await asyncio.gather(_copied(reader, upstream), _copied(answers, writer))
        finally:
            upstream.transport.abort()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
    writer.transport.abort()


async def test_what_changed_while_a_connection_was_cut_comes_when_it_is_open_again(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    door = Door(port)
    async with opcua_server(port) as (value, _), served(door.serve) as way:
        keys = {"url": f"opc.tcp://127.0.0.1:{way}/", "publish_s": 0.05, "node": NODES}
        async with caged(tmp_path, configured("opcua", **keys)) as one:
            await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
            door.shut()
            for number in range(5):
                await value.write_value(30.5 + number)
            door.open()
            await one.until(lambda: 34.5 in one.column("temperature"), "the last change")
            changes = [found for found in one.column("temperature") if found is not None]
            assert changes == [20.5, 30.5, 31.5, 32.5, 33.5, 34.5]
            assert (one.supervisor.failures, one.events.status().lost) == (0, {})


@pytest.mark.long
async def test_nothing_is_missed_once_the_first_value_of_a_restarted_server_came(
    tmp_path: Path,
) -> None:
    """It has forgotten the subscription; the source has another one at once, and says the hole."""
    (port,) = free_ports(1)
    keys = {"url": f"opc.tcp://127.0.0.1:{port}/", "publish_s": 0.05, "node": NODES}
    async with caged(tmp_path, configured("opcua", **keys)) as one:
        async with opcua_server(port):
            await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
        async with opcua_server(port) as (value, _):
            await one.until(lambda: one.column("temperature").count(20.5) == 2, "it is back")
            sent = [30.5 + number for number in range(20)]
            for temperature in sent:
                await value.write_value(temperature)
                await asyncio.sleep(0.05)
            await one.until(lambda: sent[-1] in one.column("temperature"), "the last change")
        came = [found for found in one.column("temperature") if found is not None]
        assert came[came.index(20.5, 1) + 1 :] == sent
        assert one.events.status().lost == {"away": 1}, "while it was away, and not once more"


async def test_a_server_that_answers_to_any_number_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncua's server did, after its restart in a long day: no value came any more."""
    monkeypatch.setattr(opcua, "RESUME_S", 0.5)
    asked: list[int] = []

    async def answered(_: UaSession, _subscription: int, number: int) -> ua.NotificationMessage:
        asked.append(number)
        await asyncio.sleep(0.01)
        return ua.NotificationMessage()

    monkeypatch.setattr(UaSession, "republish", answered)
    (port,) = free_ports(1)
    door = Door(port)
    async with opcua_server(port) as (value, _), served(door.serve) as way:
        keys = {"url": f"opc.tcp://127.0.0.1:{way}/", "publish_s": 0.05, "node": NODES}
        async with caged(tmp_path, configured("opcua", **keys)) as one:
            await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
            door.shut()
            door.open()
            await one.until(lambda: one.supervisor.failures, "a new connection")
            asked.clear()
            await value.write_value(34.5)
            await one.until(lambda: 34.5 in one.column("temperature"), "the last change")
        assert asked == []


@pytest.mark.long
async def test_a_source_stops_at_once_while_its_server_is_away(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    door = Door(port)
    async with opcua_server(port), served(door.serve) as way:
        keys = {"url": f"opc.tcp://127.0.0.1:{way}/", "publish_s": 0.05, "node": NODES}
        async with caged(tmp_path, configured("opcua", **keys)) as one:
            await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
            door.shut()
            await one.until(lambda: door.refused, "an attempt to connect again")
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 5


@pytest.mark.long
async def test_changes_that_a_server_or_the_source_had_no_room_for_are_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    keys = {"url": f"opc.tcp://127.0.0.1:{port}/", "publish_s": 0.05, "node": NODES}
    async with (
        opcua_server(port) as (value, _),
        caged(tmp_path, configured("opcua", **keys)) as one,
    ):
        await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
        overflowed = ua.StatusCode(ua.StatusCodes.Good | opcua.OVERFLOW)
        await value.write_value(ua.DataValue(ua.Variant(21.5), StatusCode=overflowed))
        await one.until(lambda: 21.5 in one.column("temperature"), "the value behind the loss")
        assert dict(one.intake.refused) == {"quota": 1}
        monkeypatch.setattr(opcua, "WAITING_MAX", 0)
        await value.write_value(22.5)
        await one.until(lambda: one.intake.refused["quota"] == 2, "a loss")
        await one.until(lambda: one.events.status().lost == {"refused": 2}, "a gap")


@pytest.mark.parametrize(
    "remembers",
    [
        pytest.param(True, id="remembers"),
        pytest.param(False, id="control", marks=pytest.mark.long),
    ],
)
async def test_values_that_did_not_change_while_the_agent_was_away_are_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """A server tells all values that it has to who subscribes."""
    if not remembers:
        monkeypatch.setattr(opcua.Told, "newest", lambda _: "{}")
    (port,) = free_ports(1)
    keys = {"url": f"opc.tcp://127.0.0.1:{port}/", "publish_s": 0.05, "node": NODES}
    async with opcua_server(port) as (value, state):
        at = datetime(2026, 3, 1, 8, 15, 30, tzinfo=UTC)
        for node, said in ((value, 21.5), (state, "heating")):
            await node.write_value(ua.DataValue(ua.Variant(said), SourceTimestamp=at))
        async with caged(tmp_path, configured("opcua", **keys)) as one:
            await one.until(lambda: 21.5 in one.column("temperature"), "the value")
            await one.until(lambda: "heating" in one.column("state"), "the state")
            await one.intake.durable()
        async with caged(tmp_path, configured("opcua", **keys)) as one:
            if remembers:
                later = at + timedelta(seconds=1)
                changed = ua.Variant(22.5)
                await value.write_value(ua.DataValue(changed, SourceTimestamp=later))
                await one.until(lambda: 22.5 in one.column("temperature"), "the change")
            else:
                await one.until(lambda: one.column("temperature").count(21.5) == 2, "a repeat")
            assert one.column("temperature").count(21.5) == (1 if remembers else 2)


@pytest.mark.long
async def test_a_server_is_talked_to_encrypted_and_only_where_it_is_the_known_one(
    tmp_path: Path,
) -> None:
    for name, use in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH),
        ("agent", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("other", ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        await setup_self_signed_certificate(
            tmp_path / f"{name}.pem", tmp_path / f"{name}.der", f"urn:edgewake:{name}",
            "localhost", [use], {"commonName": name},
        )  # fmt: skip
    (port,) = free_ports(1)
    keys = {
        "url": f"opc.tcp://127.0.0.1:{port}/", "node": NODES, "publish_s": 0.05,
        "security": "Basic256Sha256", "cert_file": str(tmp_path / "agent.der"),
        "key_file": str(tmp_path / "agent.pem"),
    }  # fmt: skip
    async with opcua_server(port, tmp_path):
        known = {"server_cert_file": str(tmp_path / "server.der")}
        async with caged(tmp_path / "log", configured("opcua", **keys, **known)) as one:
            await one.until(lambda: 20.5 in one.column("temperature"), "a value")
        other = {"server_cert_file": str(tmp_path / "other.der")}
        async with caged(tmp_path / "log2", configured("opcua", **keys, **other)) as one:
            await one.until(lambda: one.supervisor.failures, "a failure")
            assert one.intake.taken == 0
        plain = {"url": keys["url"], "node": NODES}
        async with caged(tmp_path / "log3", configured("opcua", **plain)) as one:
            await one.until(lambda: one.supervisor.failures, "a failure: it wants encryption")
            assert one.intake.taken == 0


async def _take(source: OpcUa, sink: MemorySink, *changes: Change) -> None:
    await source._take(intake_of(sink), list(changes))


async def test_of_each_value_the_first_change_after_a_hole_says_whether_it_is_missing() -> None:
    """The first message of a server decided for all values, though not all are in it."""
    source, sink = OpcUa(config([1, 2]), context()), MemorySink()
    await _take(source, sink, Change("a", 1, T), Change("b", 1, T))
    source._begin()
    await _take(source, sink, Change("a", 1, T))
    assert sink.lost == {}
    later = T + timedelta(seconds=9)
    await _take(source, sink, Change("b", 2, later), Change("b", 3, later))
    assert sink.lost == {"away": 1}
    await _take(source, sink, Change("a", 2, later))
    assert sink.lost == {"away": 1}, "nothing was missing of that one"


async def test_what_one_server_dropped_and_another_one_told_is_not_lost() -> None:
    source, sink = OpcUa(config([1, 2]), context()), MemorySink()
    await _take(source, sink, Change("a", 1, T))
    await _take(source, sink, Change("a", 1, T, is_after_drop=True))
    assert sink.lost == {}
    await _take(source, sink, Change("a", 2, T, is_after_drop=True))
    assert sink.lost == {"refused": 1}, "the control"
