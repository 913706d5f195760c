"""Runs a bridge: opens Kafka, however long that is away, serves, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from edgewake.cloud import metrics_port
from edgewake.cloud.bridge.admission.catalogue import Catalogue
from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.admission.register import Register
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.flow.backlog import CHECK_S, BacklogCheck
from edgewake.cloud.bridge.kafka_writer import ALONE, PRODUCER
from edgewake.cloud.bridge.mqtt.kept import KeptWords
from edgewake.cloud.bridge.mqtt.mqtt_source import MqttSource
from edgewake.cloud.bridge.mqtt.subscriptions import client_id, read_keys, subscriptions
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.pushed_maps import BridgeMaps
from edgewake.cloud.bridge.thingsboard.firmware import Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.bridge.traces import BridgeTraces
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.kafka.up_places import UNANSWERED
from edgewake.cloud.part_words import PartWords
from edgewake.cloud.traces.sampling import Sampling
from edgewake.cloud.traces.tracer import Tracer, close, gathered, open_tracer
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.maps.map_file import LOOK_S

log = logging.getLogger("edgewake.bridge")

FOLLOW_S: Final = 0.05
"""Seconds between looks at the stream catalogue and at the register of bridges."""
FOLLOW_AWAITED_S: Final = 0.002
"""The poll interval while messages wait for the catalogue."""
REGISTER_S: Final = 10.0
"""Seconds for Kafka to confirm our row in the register."""
_WRITTEN: Final = (
    topics.UP,
    topics.DEAD,
    topics.DEVICES,
    topics.STREAMS,
    topics.BRIDGES,
    topics.DOWN,
    topics.ATTRIBUTES,
    topics.MAPS,
)
PUSHED_LOOK_S: Final = 0.25
"""Seconds between looks at pushed maps: they are in use within a second."""


async def run(
    config: BridgeConfig,
    *,
    clock: Clock,
    rng: random.Random,
    stop: asyncio.Event,
    is_alive: Callable[[], bool] = lambda: True,
) -> None:
    """Serve until `stop`.

    Order at the end: stop reading, wait for Kafka, answer, disconnect. Raises LocalError.
    """
    keys = () if config.mqtt.share_key_file is None else read_keys(config.mqtt.share_key_file)
    known = _nothing_known(config, clock, rng)
    tables = await _unless_stopped(_open_kafka(config, known, clock, Backoff(rng)), stop)
    if tables is None:
        return
    maps = known.maps
    if maps is not None:  # before the bridge, which subscribes to what they name
        await asyncio.to_thread(maps.look)
    filters = () if maps is None else maps.maps.filters
    mapper = None if maps is None else Mapper(maps.maps, config.maps.prefix, config.maps.devices)
    tracer = open_tracer(config.traces, part="bridge", name=config.name)
    bridge = Bridge(
        config,
        subscriptions=subscriptions(config.kafka.installation, keys, filters),
        producer=clients.producer(config.kafka, config.name, **PRODUCER),
        alone=partial(clients.producer, config.kafka, f"{config.name}-alone", **ALONE),
        catalogue=known.catalogue,
        register=known.register,
        outbox=known.outbox,
        clock=clock,
        rng=rng,
        mapper=mapper,
        traces=None
        if tracer is None
        else BridgeTraces(tracer, Sampling(config.traces, rng), clock),
    )
    _serve_metrics(config, bridge, tracer, is_alive)
    backlog = BacklogCheck(config.kafka, f"{config.name}-backlog")
    words = PartWords(
        config.kafka, "bridge", config.name, clock, why_not_ready=bridge.health.why_not_ready
    )
    try:
        work = {
            **dict(_doors(config, bridge, known.outbox, known.memory, clock, stop)),
            "mqtt": bridge.source.run(),
            "watch": bridge.watch.run(),
            "tables": _follow(tables, bridge, known.catalogue, known.register, clock),
            "backlog": _watch_backlog(bridge, backlog, clock),
            "words": words.run(),
            "ready": _log_ready(bridge.source, config.name),
            "maps": _follow_maps(config, keys, maps, bridge, clock),
            "kept": _hear_kept(config, bridge, mapper, clock, rng),
            "sparkplug": _host_sparkplug(config, bridge, clock, rng),
        }
        await _serve(bridge, work, stop)
    finally:
        backlog.close()
        tables.close()
        await asyncio.to_thread(close, tracer)  # which sends what it still has


async def _serve(
    bridge: Bridge, work: Mapping[str, Coroutine[Any, Any, None]], stop: asyncio.Event
) -> None:
    """Run `work`, by the names of its tasks, until `stop`; what was read is answered at the end."""
    async with asyncio.TaskGroup() as tasks:
        pump = tasks.create_task(bridge.pump(), name="pump")
        others = [tasks.create_task(one, name=name) for name, one in work.items()]
        await stop.wait()
        pump.cancel()
        await bridge.drain()
        for task in others:
            task.cancel()


def _serve_metrics(
    config: BridgeConfig, bridge: Bridge, tracer: Tracer | None, is_alive: Callable[[], bool]
) -> None:
    metrics_port.serve(
        config.metrics_port,
        lambda: [
            *bridge.metrics.gather(),
            *bridge.health.gather(),
            *gathered(tracer),
        ],
        part="bridge",
        certificates=(
            config.mqtt.ca_file,
            config.mqtt.cert_file,
            *config.kafka.security.certificates,
        ),
        host=config.metrics_host,
        is_alive=is_alive,
        why_not_ready=bridge.health.why_not_ready,
    )


async def _follow_maps(
    config: BridgeConfig,
    keys: Sequence[bytes],
    maps: BridgeMaps | None,
    bridge: Bridge,
    clock: Clock,
) -> None:
    """Other maps are in use as soon as they are right; what maps found of fields is told."""
    if maps is None:
        return
    former: set[str] = set()
    learned_s = clock.monotonic_s()
    while True:
        bridge.metrics.maps_version = maps.version
        await clock.sleep(PUSHED_LOOK_S if config.maps.pushed else LOOK_S)
        before = maps.maps
        if await asyncio.to_thread(maps.look):
            former |= {*before.filters} - {*maps.maps.filters}
            former -= {*maps.maps.filters}
            wanted = subscriptions(
                config.kafka.installation, keys, maps.maps.filters, sorted(former)
            )
            bridge.set_maps(maps.maps, wanted)
        if clock.monotonic_s() - learned_s >= LOOK_S:
            learned_s = clock.monotonic_s()
            bridge.learn_announced()


async def _hear_kept(
    config: BridgeConfig, bridge: Bridge, mapper: Mapper | None, clock: Clock, rng: random.Random
) -> None:
    """Take in what the broker keeps of presence and announcements."""
    if mapper is None:
        return
    await KeptWords(
        config.mqtt,
        client_id=client_id(config.kafka.installation, f"{config.name}:kept"),
        source=bridge.source,
        mapper=mapper,
        take=partial(bridge.take, payer=None, on_settled=lambda: None, is_named=True),
        is_full=lambda: bridge.is_full,
        metrics=bridge.metrics,
        receive_max=config.inflight_messages_max,
        backoff=Backoff(rng),
        clock=clock,
    ).run()


def _doors(
    config: BridgeConfig,
    bridge: Bridge,
    outbox: Outbox,
    memory: Memory | None,
    clock: Clock,
    stop: asyncio.Event,
) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
    """What is served to devices that do not come by the broker; nothing where none is wanted.

    Imported where it is wanted: a web server is 20 MB.
    """
    if memory is None:
        return
    memory.write = lambda row: bridge.remember(*row, memory.of(row.device).token)
    firmware, looked = Firmware(config.thingsboard.firmware_dir), asyncio.Event()
    yield "firmware", _follow_firmware(firmware, looked, clock)
    if config.http.port is not None:
        from edgewake.cloud.bridge.thingsboard.device_api import DeviceApi
        from edgewake.cloud.bridge.web import serving

        api = DeviceApi(bridge, outbox, memory, firmware, looked, clock, config.http.prefix)
        yield "http", serving.serve(config.http, bridge, clock, stop, api)
    if config.thingsboard.port is not None:
        from edgewake.cloud.bridge.thingsboard import door

        mqtt = partial(door.serve, config.thingsboard, bridge, outbox, memory, firmware, clock)
        yield "tb", _once(looked, mqtt)


async def _once(looked: asyncio.Event, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Serve once the firmware is known: a version that is not known is refused for good."""
    await looked.wait()
    await serve()


async def _follow_firmware(firmware: Firmware, looked: asyncio.Event, clock: Clock) -> None:
    """Offer what came into the folder: there may be gigabytes of it to read."""
    while True:
        await asyncio.to_thread(firmware.look)
        looked.set()
        await clock.sleep(LOOK_S)


async def _host_sparkplug(
    config: BridgeConfig, bridge: Bridge, clock: Clock, rng: random.Random
) -> None:
    """Imported where it is wanted: Google's library is an extra."""
    if config.sparkplug.host_id is None:
        return
    try:
        from edgewake.cloud.bridge.sparkplug.host_session import HostSession
    except ImportError as error:
        raise LocalError(f"[sparkplug]: pip install 'edgewake[formats]' ({error})") from error
    await HostSession(config, bridge, clock, Backoff(rng)).run()


async def _watch_backlog(bridge: Bridge, check: BacklogCheck, clock: Clock) -> None:
    failed = 0
    while True:
        try:
            bridge.hold_back(await asyncio.to_thread(check.look, clock.now_ms()))
            bridge.health.note("backlog", None)
            failed = 0
        except Unavailable as error:
            failed += 1
            bridge.health.note("backlog", f"unknown how far the sequencer is ({error})")
            if failed == UNANSWERED:
                log.warning(
                    "unknown how far the sequencer is: %s",
                    error,
                    extra={"event": "bridge.backlog_unknown"},
                )
        await clock.sleep(CHECK_S)


@dataclass(frozen=True)
class _Known:
    """What a bridge knows from tables of Kafka."""

    catalogue: Catalogue
    register: Register
    outbox: Outbox
    memory: Memory | None
    maps: BridgeMaps | None


def _nothing_known(config: BridgeConfig, clock: Clock, rng: random.Random) -> _Known:
    maps = BridgeMaps(config.maps) if config.maps.are_wanted else None
    instance = f"{rng.getrandbits(64):016x}"
    register = Register(
        site=config.mqtt.site_name,
        own=config.name,
        instance=instance,
        monotonic_s=clock.monotonic_s,
    )
    memory = Memory(instance, config.name) if config.speaks_thingsboard else None
    return _Known(Catalogue(clock.monotonic_s), register, Outbox(), memory, maps)


async def _open_kafka(
    config: BridgeConfig, known: _Known, clock: Clock, backoff: Backoff
) -> TableReader:
    """Make our topics, register and read the tables, however long Kafka is away.

    Raises LocalError where a topic breaks a promise.
    """
    is_logged = False
    while True:
        try:
            return await asyncio.to_thread(_open_kafka_once, config, known)
        except Unavailable as error:
            if not is_logged:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
            is_logged = True
        await clock.sleep(backoff.next_s())


def _open_kafka_once(config: BridgeConfig, known: _Known) -> TableReader:
    topic_admin.ensure_topics(config.kafka, _WRITTEN)
    _write_row(config, *known.register.row())
    followers = {
        topics.STREAMS: known.catalogue.follow,
        topics.BRIDGES: known.register.follow,
        topics.DOWN: known.outbox.follow,
    }
    if known.memory is not None:
        followers[topics.ATTRIBUTES] = known.memory.follow
    if known.maps is not None and config.maps.pushed:
        followers[topics.MAPS] = known.maps.follow
    tables = TableReader(config.kafka, f"{config.name}-tables", followers)
    try:
        tables.read_all()
    except Unavailable:
        tables.close()
        raise
    known.outbox.is_loaded = True
    return tables


def _write_row(config: BridgeConfig, key: str, value: bytes) -> None:
    """Register before the broker keeps a session for us.

    The broker would deal messages to a session that nobody knows, and they would stay there.
    """
    client = clients.producer(
        config.kafka,
        f"{config.name}-register",
        **{"message.timeout.ms": int(REGISTER_S * 1000), "linger.ms": 0},
    )
    reports = DeliveryReports()
    client.produce(topics.BRIDGES, value, key, on_delivery=reports)
    if client.flush(REGISTER_S + 1) or reports.errors:
        raise Unavailable(f"topic {topics.BRIDGES}: {reports.why('no answer')}")


T = TypeVar("T")


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """The work's result; None where `stop` came first."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        return task.result()
    task.cancel()
    return None


async def _follow(
    tables: TableReader, bridge: Bridge, catalogue: Catalogue, register: Register, clock: Clock
) -> None:
    """Keep up with the catalogue and the register.

    Raises LocalError when another process has started under our name.
    """
    registered_s = clock.monotonic_s() - REGISTER_S
    while True:
        if tables.poll(0):
            bridge.wake()
        if register.has_twin:
            raise LocalError(
                "another bridge has started under our name: give each its own, or stop this one "
                "for good"
            )
        if register.is_missing and clock.monotonic_s() - registered_s > REGISTER_S:
            registered_s = clock.monotonic_s()
            bridge.handover.register_again()
        await clock.sleep(FOLLOW_AWAITED_S if catalogue.is_awaited else FOLLOW_S)


async def _log_ready(source: MqttSource, name: str) -> None:
    await source.subscribed.wait()
    log.info("%s serves", name, extra={"event": "part.ready"})
