"""What the operations pages cost a browser: the first rows of 10,000 devices, 1,000 vehicles that
move on a map, and twenty charts that are open for a while.

Method. Kafka, the operations API, a writer and a headless Chromium that draws in software share the
machine. The first rows: from the change of the address to the first row in the document, the
median of ten; Chromium's cache is warm, the answer is not. The map: a board with one map, to which
a writer gives a new place of each vehicle once a second; frames are those that the browser
composes in ten seconds after five, and the share of its main thread is what it was busy for. The
charts: a board with twenty charts, each of a stream of its own with fifty events a second, so a
thousand a second in all; the heap after a collection, ten seconds after the board was opened and at
the end, and the share of the main thread between.

Sent by hand: in a system of its own with the demo's load (`edgewake up`), ten readings with
mosquitto_pub and ten with curl, one after the other, each from the start of the command until its
value stands on the open Live page.

`python -m tests.bench.bench_pages [--runs 3] [--json FILE] [--devices 10000] [--vehicles 1000]
[--seconds 600]`
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import Producer
from playwright.async_api import CDPSession, Page

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.frame import encode as encode_frame
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus
from tests.bench import hand_writer
from tests.bench.figures import Found, percentile, run
from tests.chromium import chromium, open_page
from tests.ops.service import Ops, running
from tests.services import run_kafka

LIMITS: Final = """
Headless Chromium composes at most 60 frames a second, and in software; with a graphics processor
drawing costs a tenth. The writer and Kafka take a part of the two processors.
"""
DEVICES: Final = 10_000
VEHICLES: Final = 1_000
SECONDS: Final = 600
CHARTS_S_MIN: Final = 60
"""From then on the share of the main thread is held to its limit; the heap needs all of SECONDS."""
CHARTS: Final = 20
CHART_DEVICES: Final = 10
TURNS_PER_S: Final = 5
"""In each turn every device of each chart's stream sends a reading, so a chart has 50 a second."""
OPENED: Final = 10
ROWS_MS_MAX: Final = 300.0
FRAMES_MIN: Final = 10.0
BUSY_PERCENT_MAX: Final = 60.0
SHOWN_MS_MAX: Final = 2_000.0
HEAP_MB_MAX: Final = 20.0
CHARTS_BUSY_PERCENT_MAX: Final = 40.0
MAP_STREAM: Final = "bench_places"
CHART_STREAMS: Final = tuple(f"bench_numbers_{number:02d}" for number in range(CHARTS))

ROWS_JS: Final = """async () => {
  location.hash = "#/none";
  await new Promise((done) => setTimeout(done, 300));
  const began = performance.now();
  location.hash = "#/devices";
  while (!document.querySelector("main tbody tr")) {
    await new Promise((done) => requestAnimationFrame(done));
  }
  return performance.now() - began;
}"""
FRAMES_JS: Final = """(seconds) => new Promise((done) => {
  let frames = 0;
  const end = performance.now() + seconds * 1000;
  const count = () => {
    frames += 1;
    if (performance.now() >= end) done(frames / seconds);
    else requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
})"""


def measure(
    folder: Path,
    runs: int,
    *,
    devices: int = DEVICES,
    vehicles: int = VEHICLES,
    seconds: int = SECONDS,
) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with hand_writer.system(folder / "whole") as ports:
        for _ in range(runs):
            for way, took in asyncio.run(hand_writer.shown_ms(ports)).items():
                name = f"a reading by {way}, to the open Live page, p95 of {len(took)}"
                found[name, "ms", SHOWN_MS_MAX].append(percentile(took, 95))
    with run_kafka(folder / "kafka") as kafka:
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        write_fleet(config, devices)
        with running(kafka.bootstrap, folder) as ops, moving(config, vehicles):
            keep_boards(ops)
            for _ in range(runs):
                figures = asyncio.run(one(ops, seconds))
                _note(found, figures, devices, vehicles, seconds)
    return found


def _note(
    found: Found, figures: Mapping[str, float], devices: int, vehicles: int, seconds: int
) -> None:
    rows = f"{devices:,} devices: first rows"
    place = f"{vehicles:,} vehicles on a map"
    charts = f"{CHARTS} charts of {CHART_DEVICES * TURNS_PER_S} events/s, {seconds} s"
    full_fleet, full_map = devices >= DEVICES, vehicles >= VEHICLES
    for name, unit, limit, is_full, key in (
        (rows, "ms", ROWS_MS_MAX, full_fleet, "rows_ms"),
        (f"{place}: frames", "frames/s", FRAMES_MIN, full_map, "frames_per_s"),
        (f"{place}: main thread", "% of a core", BUSY_PERCENT_MAX, full_map, "busy_percent"),
        (f"{charts}: growth of the heap", "MB", HEAP_MB_MAX, seconds >= SECONDS, "heap_mb"),
        (
            f"{charts}: main thread",
            "% of a core",
            CHARTS_BUSY_PERCENT_MAX,
            seconds >= CHARTS_S_MIN,
            "charts_busy_percent",
        ),
    ):
        found[name, unit, limit if is_full else None].append(figures[key])


async def one(ops: Ops, seconds: int) -> dict[str, float]:
    """One browser."""
    async with chromium() as browser:
        page = await open_page(browser, viewport={"width": 1440, "height": 900})
        await page.goto(ops.url + ops.client.post("/v1/tickets").json()["path"])
        await page.wait_for_selector("nav#rail a")
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        rows_ms = [await page.evaluate(ROWS_JS) for _ in range(OPENED)]
        frames, busy = await _on_the_map(page, session)
        heap, charts_busy = await _of_charts(page, session, seconds)
    return {
        "rows_ms": statistics.median(rows_ms),
        "frames_per_s": frames,
        "busy_percent": busy,
        "heap_mb": heap,
        "charts_busy_percent": charts_busy,
    }


async def _on_the_map(page: Page, session: CDPSession) -> tuple[float, float]:
    """Frames a second, and percent of a core of the main thread."""
    await page.evaluate("location.hash = '#/boards/bench_map'")
    await page.wait_for_selector("main .place-map canvas")
    await asyncio.sleep(5)
    before = await _metrics(session)
    frames = float(await page.evaluate(FRAMES_JS, 10))
    return frames, _busy_percent(before, await _metrics(session))


def _busy_percent(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    spent = after["TaskDuration"] - before["TaskDuration"]
    return 100 * spent / (after["Timestamp"] - before["Timestamp"])


async def _of_charts(page: Page, session: CDPSession, seconds: int) -> tuple[float, float]:
    """MB that the heap grew by, and percent of a core of the main thread."""
    await page.evaluate("location.hash = '#/boards/bench_charts'")
    await page.wait_for_function(
        "(n) => document.querySelectorAll('main .uplot canvas').length === n", arg=CHARTS
    )
    await asyncio.sleep(10)
    heap = await _heap(session)
    before = await _metrics(session)
    await asyncio.sleep(seconds)
    busy = _busy_percent(before, await _metrics(session))
    return (await _heap(session) - heap) / 1e6, busy


async def _heap(session: CDPSession) -> float:
    """Bytes of what lives."""
    await session.send("HeapProfiler.collectGarbage")
    return (await _metrics(session))["JSHeapUsedSize"]


async def _metrics(session: CDPSession) -> dict[str, float]:
    found = await session.send("Performance.getMetrics")
    return {one["name"]: one["value"] for one in found["metrics"]}


def write_fleet(config: KafkaConfig, devices: int) -> None:
    """Rows of so many devices, on `ew.devices`."""
    topic_admin.ensure_topics(config, [topics.DEVICES])
    producer = clients.producer(config, "bench-pages-fleet")
    now = time.time_ns() // 1_000_000
    for number in range(devices):
        name = f"dev-{number:06d}"
        status = DeviceStatus(
            device=name, state=DeviceState.ONLINE, received_at=now, epoch=1, version="1.0"
        )
        seen = DeviceSeen(device=name, last_seen=now, skew_ms=0, records=1, streams={"s": 1})
        for what, row in (("status", status), ("seen", seen)):
            producer.produce(topics.DEVICES, key=f"{name}|{what}", value=row.to_json())
            producer.poll(0)
    producer.flush(30)


@contextmanager
def moving(config: KafkaConfig, vehicles: int) -> Iterator[None]:
    """Vehicles that move once a second, and devices with numbers."""
    topic_admin.ensure_topics(
        config, [topics.STREAMS, *map(topics.stream_topic, (MAP_STREAM, *CHART_STREAMS))]
    )
    producer = clients.producer(config, "bench-pages")
    declare(producer, MAP_STREAM, ["lat", "lon"])
    for name in CHART_STREAMS:
        declare(producer, name, ["n"])
    is_over = Event()
    thread = Thread(target=_write, args=(producer, vehicles, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def declare(producer: Producer, name: str, fields: list[str]) -> None:
    """Put a stream of numbers into the catalogue."""
    row = Stream(name=name, fields={one: FieldInfo(type=FieldType.NUMBER) for one in fields})
    producer.produce(topics.STREAMS, key=name, value=row.model_dump_json().encode())
    producer.flush(10)


def _write(producer: Producer, vehicles: int, is_over: Event) -> None:
    number = 0
    while not is_over.wait(1 / TURNS_PER_S):
        number += 1
        for vehicle in range(vehicles if number % TURNS_PER_S == 0 else 0):
            angle = vehicle + number / TURNS_PER_S / 50
            radius = 0.02 + vehicle / vehicles / 20
            place = {"lat": 52.5 + radius * math.sin(angle), "lon": 13.4 + radius * math.cos(angle)}
            _put(producer, f"car-{vehicle:04d}", MAP_STREAM, number, place)
        for chart, stream in enumerate(CHART_STREAMS):
            for device in range(CHART_DEVICES):
                values = {"n": math.sin(number / 45 + chart) + device}
                _put(producer, f"dev-{device:06d}", stream, number, values)
        producer.flush(10)


def _put(
    producer: Producer, device: str, stream: str, number: int, fields: Mapping[str, float]
) -> None:
    now = time.time_ns() // 1_000_000
    frame = Frame(
        epoch=1,
        frame=number,
        seq=number,
        t=[now],
        fields={name: [value] for name, value in fields.items()},
    )
    value = record.encode(
        device=device,
        stream=stream,
        mode=Mode.ACK,
        sent_at=None,
        received_at=now,
        frame_bytes=encode_frame(frame),
    )
    producer.produce(topics.stream_topic(stream), key=device, value=value)
    producer.poll(0)


def keep_boards(ops: Ops) -> None:
    """A board with a map, and one with charts."""
    place = {"kind": "map", "source": MAP_STREAM, "x": 0, "y": 0, "w": 12, "h": 9}
    charts: list[dict[str, Any]] = [
        {
            "kind": "chart",
            "source": stream,
            "field": "n",
            "x": 3 * (number % 4),
            "y": 3 * (number // 4),
            "w": 3,
            "h": 3,
        }
        for number, stream in enumerate(CHART_STREAMS)
    ]
    for name, cards in (("bench_map", [place]), ("bench_charts", charts)):
        body = {"title": name, "cards": cards}
        ops.client.put(f"/v1/boards/{name}", json=body).raise_for_status()


if __name__ == "__main__":
    run(
        measure,
        __doc__,
        sizes={"devices": DEVICES, "vehicles": VEHICLES, "seconds": SECONDS},
    )
