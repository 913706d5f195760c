"""A reading's trace through the real parts, as an OpenTelemetry Collector is told it."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from edgewake.protocol.errors import LocalError
from tests.services import PATIENCE_S, Process, free_ports, wait_until
from tests.story.system import System
from tests.traces.collector import Collector, Span, collector, ensured

pytestmark = pytest.mark.services

STREAM, QUERY = "climate", "warmest"
SQL = f"""-- name: {QUERY}
-- description: The warmest of each device in a second.
SELECT device, max(temperature) AS warmest FROM {STREAM}
GROUP BY window(event_time, '1 second'), device
"""
TRACED = ("bridge", "sequencer", "analysis", "access")
"""Commands of the parts that make spans, in the order of a reading's way."""


class TracedSystem(System):
    """The parts with a collector, one bridge and one access server."""

    def __init__(self, directory: Path, told: Collector) -> None:
        self._told = told
        (self.metrics_port,) = free_ports(1)
        super().__init__(
            directory, agents=(), stream=STREAM, bridges=1, servers=1, analysis="trigger_ms = 200\n"
        )

    def _metrics_of(self, name: str) -> str:
        return f"metrics_port = {self.metrics_port}\n" if name == "bridge-1" else ""

    def _part(
        self, command: str, name: str, text: str, environment: dict[str, str] | None = None
    ) -> Process:
        if command in TRACED:
            text += f'[traces]\nendpoint = "{self._told.url}"\n'
        if command == "bridge":
            text += "asked_per_min = 2\n"
        return super()._part(command, name, text, environment)

    def send(self, name: str, temperature: float, traceparent: str = "", **more: object) -> None:
        """Publish a reading with a client of others, which waits for the broker's answer."""
        properties = (
            ["-D", "publish", "user-property", "traceparent", traceparent] if traceparent else []
        )
        subprocess.run(
            [
                "mosquitto_pub", "-V", "5", "-q", "1", "-h", "127.0.0.1", "-p", str(self.mqtt_port),
                "-i", name, "-t", f"ew/v1/{name}/up/{STREAM}", *properties,
                "-m", json.dumps({"temperature": temperature, **more}),
            ],
            check=True,
        )  # fmt: skip

    def outcomes(self) -> dict[str, float]:
        """Outcome → spans of the bridge, as Prometheus reads them."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        lines = [one for one in text.splitlines() if one.startswith("edgewake_trace_spans_total")]
        return {one.split('"')[1]: float(one.split()[-1]) for one in lines}


@dataclass(frozen=True)
class Shown:
    """An event as it stood in the stream, and the comment before it."""

    data: dict[str, object]
    traceparent: str


@contextmanager
def reading(system: System, name: str) -> Iterator[Iterator[Shown]]:
    """The events of a stream or query from its beginning on."""
    ((host, port),) = system.servers
    url = f"http://{host}:{port}/v1/streams/{name}/events"
    with httpx.stream(
        "GET", url, params={"from": "earliest", "absent": "wait"}, timeout=PATIENCE_S
    ) as answer:
        assert answer.status_code == 200
        yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Shown]:
    traceparent, kind = "", ""
    for line in lines:
        if line.startswith(": traceparent="):
            traceparent = line.removeprefix(": traceparent=")
        elif line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: ") and not kind:
            yield Shown(json.loads(line.removeprefix("data: ")), traceparent)
        elif not line:
            traceparent = kind = ""


@dataclass(frozen=True)
class Asked:
    """What a device says of its trace."""

    trace_id: str
    span_id: str
    flags: str = "01"

    @classmethod
    def new(cls, flags: str = "01") -> Asked:
        """One that nobody has."""
        return cls(secrets.token_hex(16), secrets.token_hex(8), flags)

    @property
    def header(self) -> str:
        """The `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def of_trace(told: Collector, trace_id: str) -> dict[str, Span]:
    """Id → span, of one trace."""
    return {one.id: one for one in told.spans() if one.trace_id == trace_id}


def way(spans: dict[str, Span], last: str) -> list[str]:
    """The services from the device's own span to this one; the first is its id."""
    names: list[str] = []
    at = last
    while at in spans:
        names.append(spans[at].service.removeprefix("edgewake-"))
        at = spans[at].parent
    return [at, *reversed(names)]


async def test_a_trace_goes_from_the_device_to_the_event_of_the_reading_and_of_the_result(
    tmp_path: Path,
):
    try:
        ensured()
    except LocalError as error:
        pytest.skip(str(error))
    with collector(tmp_path / "told") as told:
        async with TracedSystem(tmp_path / "system", told) as system:
            system.register(QUERY, SQL)
            await system.start("sequencer", "bridge-1", "access-1", "analysis")
            await asyncio.to_thread(_follow, system, told)
            await asyncio.to_thread(_lose_the_collector, system, told)


def _follow(system: TracedSystem, told: Collector) -> None:
    asked, unsampled, broken = Asked.new(), Asked.new(flags="00"), Asked.new()
    system.send("dev-1", 21.0, asked.header)
    system.send("dev-1", 22.0)
    system.send("dev-1", 23.0, unsampled.header)
    system.send("dev-1", 24.0, asked.header.replace("00-", "no-", 1))
    with reading(system, STREAM) as events:
        shown = [next(events) for _ in range(4)]
    assert [one.data["temperature"] for one in shown] == [21.0, 22.0, 23.0, 24.0]
    assert [one.traceparent != "" for one in shown] == [True, False, False, False]
    with reading(system, QUERY) as events:
        result = next(one for one in events if one.traceparent)
    assert result.data["device"] == "dev-1"
    # A reader goes on with the span that the event came by, of the device's own trace.
    ends = [one.traceparent.split("-") for one in (shown[0], result)]
    assert [(end[1], end[3]) for end in ends] == [(asked.trace_id, "01")] * 2
    last_of_reading, last_of_result = (end[2] for end in ends)

    def is_whole() -> bool:
        spans = of_trace(told, asked.trace_id)
        return all(
            way(spans, last)[0] == asked.span_id for last in (last_of_reading, last_of_result)
        )

    wait_until(is_whole, "the collector has the whole trace")
    spans = of_trace(told, asked.trace_id)
    assert way(spans, last_of_reading) == [asked.span_id, "bridge", "sequencer", "access"]
    assert way(spans, last_of_result) == [
        asked.span_id, "bridge", "sequencer", "analysis", "access",
    ]  # fmt: skip
    assert all(one.took_ns >= 0 and not one.is_failed for one in spans.values())
    (of_bridge,) = (one for one in spans.values() if one.name == "bridge")
    assert of_bridge.attributes["messaging.destination.name"] == f"ew/v1/dev-1/up/{STREAM}"
    assert of_bridge.attributes["edgewake.device"] == "dev-1"
    # Nothing else was told: not what is not sampled, nor what asks for nothing.
    assert {one.trace_id for one in told.spans()} == {asked.trace_id}
    # One that is refused ends at the bridge, and says why.
    system.send("dev-1", 25.0, broken.header, device="another")
    wait_until(lambda: of_trace(told, broken.trace_id), "the refusal is told")
    (refused,) = of_trace(told, broken.trace_id).values()
    assert refused.is_failed
    assert (refused.parent, refused.attributes["edgewake.reason"]) == (
        broken.span_id,
        "foreign_device",
    )


def _lose_the_collector(system: TracedSystem, told: Collector) -> None:
    """Readings pass all the same, and spans that were lost are counted."""
    before = system.outcomes()
    assert before["exported"] >= 2
    assert before.get("failed", 0) == 0
    told.process.kill()
    lost = Asked.new()
    system.send("dev-2", 31.0, lost.header)
    with reading(system, STREAM) as events:
        passed = next(one for one in events if one.data["device"] == "dev-2")
    assert lost.trace_id in passed.traceparent
    wait_until(lambda: system.outcomes().get("failed", 0) >= 1, "the loss of a span is counted")
    told.start()
    found = Asked.new()
    system.send("dev-2", 32.0, found.header)
    wait_until(lambda: of_trace(told, found.trace_id), "spans are told again")
    assert "bridge" not in {one.name for one in of_trace(told, lost.trace_id).values()}
    # A device may ask for two in a minute here; its readings pass, and their trace ends with it.
    asked = [Asked.new() for _ in range(8)]
    for number, one in enumerate(asked):
        system.send("dev-3", number, one.header)
    other = Asked.new()
    system.send("dev-4", 0, other.header)
    wait_until(lambda: of_trace(told, other.trace_id), "another device's is told")
    is_told = [bool(of_trace(told, one.trace_id)) for one in asked]
    assert is_told[:2] == [True, True]
    assert not all(is_told), "one more was allowed every half a minute"
    with reading(system, STREAM) as events:
        of_third = (one for one in events if one.data["device"] == "dev-3")
        assert [next(of_third).data["temperature"] for _ in asked] == list(range(8))
