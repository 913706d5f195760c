"""Three hundred mixed devices, our parts as processes, and what happens to them in a day.

What is promised: plain devices that wait for their answers, a house whose broker keeps messages,
and programs that post under a key lose nothing, whatever is killed. Who speaks to nobody may lose
what was said while its listener was dead: the oracle is told when that was.

Bluetooth is not in it: what hears advertisements is bleak, which asks the system's BlueZ, and a
process of ours has no port where others could stand in its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from edgewake.simulators.clients import Follower
from tests.day import machine_things
from tests.day.bridge_things import DoorJson, DoorLines, Eager, ThingsBoard
from tests.day.collector import Collector, Letters
from tests.day.machine_things import CanBus, Modbus, OpcUa, Program
from tests.day.mqtt_things import House, Plain
from tests.day.oracle import Key, Oracle, Verdict
from tests.day.sparkplug_things import HOST, Node
from tests.day.things import Family, now_ms
from tests.day.web_things import Json, Lines
from tests.services import (
    PATIENCE_S,
    Kafka,
    Mosquitto,
    Process,
    free_ports,
    part,
    run_kafka,
    run_mosquitto,
)

READY = '"event":"part.ready"'
HOUR_MS = 3_600_000
BEFORE_MS = 2_000
"""What was said so shortly before what came last may come after it: a device's words are told in
their order, those of a family are not."""
UNPROMISED = {
    "plant": ("modbus", "opcua", "can", "exec"),
    "house": ("sparkplug",),
    "bridge": ("sparkplug_bridge", "tasmota_bridge", "zigbee_bridge", "thingsboard"),
}
"""Part → families that speak to it and keep nothing, or say again what has no number."""
AT_BROKER = ("sparkplug_bridge", "tasmota_bridge", "zigbee_bridge")
"""Families that speak to the broker that is killed, and wait for no answer."""
CLOCKS = (
    "plain", "tasmota", "zigbee", "json", "lines",
    "tasmota_bridge", "zigbee_bridge", "door_json", "door_lines",
)  # fmt: skip
"""Families that can be restarted, and have clocks that jump."""
SHARE = 120
"""Messages a second that a device may send."""
LOST_SHOWN = 100
"""Lost numbers that the report tells of."""
BURST = 300
"""Readings that an eager device says at once."""


class Ports(NamedTuple):
    """Where things and parts listen."""

    modbus: int
    opcua: int
    posted: int
    sent: int
    access: int
    door: int
    thingsboard: int
    can: int


@dataclass(frozen=True)
class Size:
    """How many devices of each kind."""

    plain: int = 14  # connections of ten devices
    tasmota: int = 30
    zigbee: int = 30
    nodes: int = 8  # of three devices
    modbus: int = 10
    opcua: int = 10
    can: int = 6
    json: int = 30
    lines: int = 20
    program: int = 4
    # at the bridge, with no agent
    eager: int = 2
    mapped: int = 10  # of Tasmota, and of Zigbee
    gates: int = 2  # of three devices
    thingsboard: int = 8
    door_json: int = 10
    door_lines: int = 6


async def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll while everything else goes on."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
        await asyncio.sleep(0.05)


def _is_answered(one: Eager) -> bool:
    """Was something put off, or all taken?"""
    return bool(one.postponed) or not one.waiting


class Day:
    """`async with` it, then `live`, then `settle`."""

    def __init__(
        self,
        folder: Path,
        *,
        every_s: float,
        size: Size | None = None,
        faults: Container[str] | None = None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`faults`: those that happen; None: all. `tell`: is told what happens, in words."""
        self.folder, self._every_s, self._tell = folder, every_s, tell
        self._size = size or Size()
        self._wanted = faults
        self.oracle = Oracle()
        self.faults: list[str] = []
        self._began_ms = now_ms()
        self.times: list[tuple[str, int]] = []
        """What happened, and when it began."""
        self._stack = AsyncExitStack()
        self.collector = Collector(self.oracle, self._size.modbus, self._size.opcua)
        self.families: dict[str, list[Family]] = {}
        self._parts: dict[str, Process] = {}
        self._broker: Mosquitto
        self._home: Mosquitto
        self._kafka: Kafka

    @property
    def things(self) -> int:
        """Devices."""
        return sum(len(one.things) for each in self.families.values() for one in each)

    # --- the house ---

    async def __aenter__(self) -> Day:
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _begin(self) -> None:
        enter = self._stack.enter_context
        self._broker = enter(run_mosquitto(self.folder / "broker"))
        self._home = enter(run_mosquitto(self.folder / "home"))
        self._kafka = enter(run_kafka(self.folder / "kafka"))
        ports = Ports(*free_ports(len(Ports._fields)))
        self._parts = self._configured(ports)
        self._stack.callback(self._stop_parts)
        self._make_families(ports)
        for each in self.families.values():
            for one in each:
                await one.start()
                self._stack.push_async_callback(one.stop)
        for process in self._parts.values():
            process.start()
        for process in self._parts.values():
            await asyncio.to_thread(process.wait_for, READY)
        letters = Letters(self.oracle, self._kafka.bootstrap)
        letters.start()
        self._stack.callback(letters.stop)
        self.letters = letters
        self._followers = [
            Follower(f"reader-{n}", [("127.0.0.1", ports.access)], streams, self.collector.on_event)
            for n, streams in enumerate(self.collector.streams)
        ]
        for follower in self._followers:
            follower.wake()
            self._stack.push_async_callback(follower.sleep)

    def _stop_parts(self) -> None:
        for process in reversed(self._parts.values()):
            if process.is_running():
                process.stop()

    @property
    def _written(self) -> Path:
        return self.folder / "ticks.jsonl"

    def _configured(self, ports: Ports) -> dict[str, Process]:
        kafka = f'[kafka]\nbootstrap = "{self._kafka.bootstrap}"\n'
        mqtt = f"[mqtt]\nport = {self._broker.port}\n"
        home = f"broker = {{ port = {self._home.port} }}\n"
        file = self.folder / "bus.dbc"
        machine_things.dbc(file, self._size.can)
        house = (
            '[[source]]\ntype = "mqtt_subscribe"\nstream = "tasmota_sensor"\n'
            f'presets = ["tasmota"]\n{home}'
            '[[source]]\ntype = "mqtt_subscribe"\nstream = "zigbee"\n'
            f'presets = ["zigbee2mqtt"]\n{home}'
            f'[[source]]\ntype = "sparkplug"\nstream = "hall"\nhost_id = "{HOST}"\n{home}'
        )
        plant = machine_things.sources(
            self._size.modbus, self._size.opcua, (ports.modbus, ports.opcua), file,
            self._written,
        )  # fmt: skip
        intake = (
            f'[[source]]\ntype = "http_intake"\nstream = "posted"\nport = {ports.posted}\n'
            'connections_max = 64\ntime = { field = "t" }\n'
            f'[[source]]\ntype = "http_intake"\nstream = "sent"\nport = {ports.sent}\n'
            'connections_max = 64\npresets = ["all"]\n'
        )
        bridge = (
            f'[maps]\npresets = ["tasmota", "zigbee2mqtt"]\n[http]\nport = {ports.door}\n'
            f'[thingsboard]\nport = {ports.thingsboard}\n[sparkplug]\nhost_id = "{HOST}"\n'
            f"[device]\nmessages_per_s = {SHARE}\nburst_s = 1\n"
        )
        texts = {
            "sequencer": ("sequencer", f'name = "sequencer-1"\n{kafka}'),
            "bridge": ("bridge", f'name = "bridge-1"\n{mqtt}{kafka}{bridge}'),
            "access": ("access", f"port = {ports.access}\n{kafka}"),
            "house": ("agent", self._agent("house", mqtt + house)),
            "plant": ("agent", self._agent("plant", mqtt + plant)),
            "intake": ("agent", self._agent("intake", mqtt + intake)),
        }
        found = {}
        for name, (command, text) in texts.items():
            config = self.folder / f"{name}.toml"
            config.write_text(text)
            log = self.folder / "logs" / f"{name}.log"
            found[name] = part(command, config, log, env=machine_things.environment(ports.can))
        return found

    def _agent(self, name: str, text: str) -> str:
        return f'device = "{name}"\ndata_dir = "{self.folder}/{name}"\n{text}'

    def _make_families(self, ports: Ports) -> None:
        size, oracle = self._size, self.oracle
        home, ours = self._home.port, self._broker.port
        near: dict[str, list[Family]] = {
            "plain": [
                Plain([f"sensor-{i}-{j}" for j in range(10)], ours, oracle)
                for i in range(size.plain)
            ],
            "tasmota": [House("tasmota", [f"plug-{i}" for i in range(size.tasmota)], home, oracle)],
            "zigbee": [House("zigbee", [f"room-{i}" for i in range(size.zigbee)], home, oracle)],
            "sparkplug": [
                Node(f"gw{i}", [f"d{j}" for j in range(3)], home, oracle) for i in range(size.nodes)
            ],
            "modbus": [Modbus(size.modbus, ports.modbus, oracle)],
            "opcua": [OpcUa(size.opcua, ports.opcua, oracle)],
            "can": [CanBus(size.can, ports.can, oracle)],
            "json": [Json([f"phone-{i}" for i in range(size.json)], ports.posted, oracle)],
            "lines": [Lines([f"host-{i}" for i in range(size.lines)], ports.sent, oracle)],
        }
        self.families = near | self._far_families(ports)

    def _far_families(self, ports: Ports) -> dict[str, list[Family]]:
        """Those at the bridge, and a program."""
        size, oracle, ours = self._size, self.oracle, self._broker.port
        found: dict[str, list[Family]] = {
            "exec": [Program(size.program, self._written, oracle)],
            "eager": [Eager([f"eager-{i}" for i in range(size.eager)], ours, oracle)],
            "sparkplug_bridge": [
                Node(f"far{i}", [f"d{j}" for j in range(3)], ours, oracle, "sparkplug_bridge")
                for i in range(size.gates)
            ],
            "thingsboard": [
                ThingsBoard(
                    [f"boiler-{i}" for i in range(size.thingsboard)], ports.thingsboard, oracle
                )
            ],
            "door_json": [
                DoorJson([f"app-{i}" for i in range(size.door_json)], ports.door, oracle)
            ],
            "door_lines": [
                DoorLines([f"server-{i}" for i in range(size.door_lines)], ports.door, oracle)
            ],
        }
        for kind in ("tasmota", "zigbee"):
            names = [f"{kind}-far-{i}" for i in range(size.mapped)]
            family = f"{kind}_bridge"
            found[family] = [House(family, names, ours, oracle, at_ours=True)]
        return found

    # --- the day ---

    async def live(self, seconds: float) -> None:
        """All of them speak, and things happen, each at its part of the time."""
        began_s = time.monotonic()
        speaking = asyncio.create_task(self._speak(), name="speaking")
        try:
            await self._first_words(speaking)
            plan = [one for one in self._plan() if self._wanted is None or one[0] in self._wanted]
            for number, (name, happens) in enumerate(plan, 1):
                due_s = began_s + seconds * number / (len(plan) + 1)
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                if speaking.done():
                    speaking.result()
                self._tell(name)
                self.times.append((name, now_ms()))
                await happens()
                self.faults.append(name)
            await asyncio.sleep(max(0.0, began_s + seconds - time.monotonic()))
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    async def _first_words(self, speaking: asyncio.Task[None]) -> None:
        """Before this nobody knows since when the buses are listened to."""
        begin = now_ms()

        def are_all_seen() -> bool:
            if speaking.done():
                speaking.result()
            for follower in self._followers:
                assert follower.awake, follower.name
            return self.collector.newest.keys() >= self.families.keys()

        self._tell("first words")
        try:
            await until(are_all_seen, "something of each family is seen")
        except AssertionError as error:
            error.add_note(f"seen: {sorted(self.collector.newest)}")
            raise
        self.oracle.away(
            {name for names in UNPROMISED.values() for name in names}, begin - HOUR_MS, now_ms()
        )

    async def _speak(self) -> None:
        ones = [one for each in self.families.values() for one in each]
        while True:
            for one in ones:
                await one.say()
                await asyncio.sleep(self._every_s / len(ones))

    def _plan(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        return [
            ("agent of the house killed", lambda: self._kill_listener("house")),
            ("bridge killed", lambda: self._kill_listener("bridge")),
            ("devices send more than their share", self._burst),
            ("devices restarted", self._restart_devices),
            ("clocks jump back", lambda: self._jump(-6 * HOUR_MS)),
            ("firmware writes text", lambda: self._firmware(is_odd=True)),
            ("broker killed", self._kill_broker),
            ("agent of the plant killed", lambda: self._kill_listener("plant")),
            ("clocks jump forward", lambda: self._jump(HOUR_MS // 30)),
            ("agent of the programs killed", lambda: self._kill_listener("intake")),
            ("machines away", self._restart_machines),
            ("firmware writes numbers again", lambda: self._firmware(is_odd=False)),
            ("sequencer killed", lambda: self._kill("sequencer")),
            ("clocks are right again", lambda: self._jump(0)),
        ]

    async def _kill(self, name: str) -> None:
        process = self._parts[name]
        process.kill()
        process.start()
        await asyncio.to_thread(process.wait_for, READY)

    async def _kill_listener(self, name: str) -> None:
        seen = self._seen(UNPROMISED.get(name, ()))
        await self._kill(name)
        await self._heard_again(seen)

    def _seen(self, families: Iterable[str]) -> dict[str, int]:
        """When was said what came last of each. What was said later may be on its way to whoever
        is killed now: on a busy machine it takes seconds.
        """
        return {name: self.collector.newest[name] for name in families}

    async def _heard_again(self, seen: Mapping[str, int]) -> None:
        """Until something of each family came that was said from now on.

        `seen`: when was said what had come of it before it was killed.
        """
        after = now_ms()
        unheard = set(seen)

        def are_all_heard() -> bool:
            unheard.difference_update(
                {name for name in unheard if self.collector.newest[name] > after}
            )
            return not unheard

        try:
            await until(are_all_heard, "they are heard again")
        except AssertionError as error:
            error.add_note(f"unheard: {sorted(unheard)}")
            raise
        for name, seen_ms in seen.items():
            self.oracle.away([name], seen_ms - BEFORE_MS, now_ms())

    async def _kill_broker(self) -> None:
        seen = self._seen(AT_BROKER)
        self._broker.process.kill()
        await asyncio.sleep(1.0)
        await asyncio.to_thread(self._broker.start)
        await self._heard_again(seen)

    async def _burst(self) -> None:
        for one in self.families["eager"]:
            assert isinstance(one, Eager)
            deadline = time.monotonic() + PATIENCE_S
            while not one.postponed:  # a busy machine may bring a burst as slowly as its share
                assert time.monotonic() < deadline, "none has to wait"
                await one.burst(BURST)
                await until(partial(_is_answered, one), "all is answered")

    async def _restart_devices(self) -> None:
        for name in (*CLOCKS, "sparkplug", "sparkplug_bridge", "exec"):
            ones = self.families[name]
            seen = self._seen([name])
            for one in ones[:: 1 if len(ones) == 1 else 3]:
                await one.restart()
            if name in ("sparkplug", "sparkplug_bridge", "exec"):
                await self._heard_again(seen)

    async def _restart_machines(self) -> None:
        for name in ("modbus", "opcua"):
            seen = self._seen([name])
            for one in self.families[name]:
                await one.restart()
            await self._heard_again(seen)

    async def _jump(self, by_ms: int) -> None:
        """The clocks of every third device that has one."""
        for name in (*CLOCKS, "thingsboard", "eager"):
            for one in self.families[name]:
                for thing in one.things[::3]:
                    thing.offset_ms = by_ms

    async def _firmware(self, *, is_odd: bool) -> None:
        for name in (*CLOCKS, "thingsboard", "exec", "sparkplug", "sparkplug_bridge"):
            for one in self.families[name]:
                for thing in one.things[1::5] or one.things[:1]:
                    thing.is_odd = is_odd

    # --- the evening ---

    async def settle(self, patience_s: float = PATIENCE_S) -> Verdict:
        """What the oracle says once nothing waits any more, or after the time."""
        for one in self.families["modbus"]:
            assert isinstance(one, Modbus)
            await one.fall_silent()  # all others are silent already
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            waiting = {name: self._waiting(name) for name in self.families}
            verdict = self.oracle.judge()
            self._tell(f"{ {name: n for name, n in waiting.items() if n} } {verdict}")
            if not any(waiting.values()) and not verdict.lost:
                break
            await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)  # for what comes twice: nobody says when it does not
        self.at_the_end = {name: self._waiting(name) for name in self.families}
        return self.oracle.judge()

    def _waiting(self, name: str) -> int:
        return sum(one.waiting for one in self.families[name])

    def report(self, verdict: Verdict) -> dict[str, Any]:
        """For people."""
        return {
            "devices": self.things,
            "said": len(self.oracle.puts),
            "shown": len(self.oracle.cames),
            "kept aside": sum(self.oracle.besides.values()),
            "of nodes without a birth": self.letters.sparkplug,
            "gaps told": len(self.collector.gaps),
            "faults": self.faults,
            "verdict": str(verdict),
            "lost": [self._said(key) for key in verdict.lost[:LOST_SHOWN]],
        }

    def _said(self, key: Key) -> str:
        """When a number was said, and what had happened last."""
        put = self.oracle.puts[key]
        name, at_ms = max(
            ((name, at_ms) for name, at_ms in self.times if at_ms <= put.at_ms),
            key=lambda one: one[1],
            default=("nothing happened", self._began_ms),
        )
        since_s = (put.at_ms - at_ms) / 1000
        return f"{put.device} {put.n}: {since_s:.1f} s after {name!r}"
