"""The process of the operations API: it wires, starts and stops all that is in it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from pydantic import Field, model_validator

from edgewake.cloud import process_metrics
from edgewake.cloud.alerts.judging import Judging
from edgewake.cloud.alerts.sender import Sender
from edgewake.cloud.calls import sealing, webhook
from edgewake.cloud.client_share import Clients, NetworkText
from edgewake.cloud.folder import Folder
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake import manifest
from edgewake.cloud.lake.asking import Asking
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.desk import Desk as LoginDesk
from edgewake.cloud.login.wiring import desk_of
from edgewake.cloud.ops.app import make_app
from edgewake.cloud.ops.credentials.desk import CredentialDesk
from edgewake.cloud.ops.history.audit_log import AuditLog
from edgewake.cloud.ops.history.history_log import HistoryLog
from edgewake.cloud.ops.history.problem_desk import ProblemDesk
from edgewake.cloud.ops.letters.dead_letters import DeadLetterIndex
from edgewake.cloud.ops.letters.letter_replayer import LetterReplayer
from edgewake.cloud.ops.login.auth import Access
from edgewake.cloud.ops.login.key_door import KeyDoor
from edgewake.cloud.ops.login.keys import KEY_ROLES, Keys
from edgewake.cloud.ops.login.people import People
from edgewake.cloud.ops.login.readers import Readers
from edgewake.cloud.ops.login.sessions import SESSION_LIFE_S, TICKET_LIFE_S, Passes
from edgewake.cloud.ops.lookups.fault_control import FaultControl, FaultsConfig
from edgewake.cloud.ops.lookups.kafka_lookup import KafkaLookup
from edgewake.cloud.ops.lookups.push_proxy import PushProxy, PushProxyConfig
from edgewake.cloud.ops.lookups.retention import RetentionDesk
from edgewake.cloud.ops.lookups.summary_reads import SummaryReads
from edgewake.cloud.ops.maps.map_desk import MapDesk
from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.ops.services.alert_desk import AlertDesk
from edgewake.cloud.ops.services.alert_levels import look_again_and_again
from edgewake.cloud.ops.services.board_desk import BoardDesk
from edgewake.cloud.ops.services.catalogue_editor import CatalogueEditor
from edgewake.cloud.ops.services.client_desk import ClientDesk
from edgewake.cloud.ops.services.device_commands import DeviceCommands
from edgewake.cloud.ops.services.eraser import EraserDesk
from edgewake.cloud.ops.services.named_desk import NamedDesk
from edgewake.cloud.ops.services.previews import PreviewDesk
from edgewake.cloud.ops.services.queries import Checked, NotThereYet, QueryService
from edgewake.cloud.ops.services.reader import Reader
from edgewake.cloud.ops.services.repairs import RepairDesk
from edgewake.cloud.ops.services.replies import Replies
from edgewake.cloud.ops.services.system_look import SystemLook
from edgewake.cloud.ops.tables.device_table import Event
from edgewake.cloud.ops.tables.event_ring import EventRing
from edgewake.cloud.ops.tables.metrics import TablesCollector
from edgewake.cloud.ops.tables.requests import RequestTable
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import Change, OpsTables, TopicOffsets
from edgewake.cloud.part_words import PartWords
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.roles import Roles
from edgewake.cloud.summaries.follower import Follower
from edgewake.cloud.web import http_part, tls
from edgewake.cloud.web.connections import Connections
from edgewake.cloud.web.host import HostCheck
from edgewake.protocol import config, log, topics
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames.stream import Stream

logger = logging.getLogger("edgewake.ops")

LOOK_EVERY_S: Final = 1.0
"""Seconds between checks for silent devices and parts, and of the key file."""
CLEAN_UP_EVERY_S: Final = 30.0
"""Seconds between clean-ups after removed queries."""


class OpsConfig(config.Config):
    """The configuration of the operations API."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    also_hosts: tuple[str, ...] = Field(default=(), max_length=8)
    """More addresses to listen on, e.g. of the local network: ["192.168.1.5"]."""
    also_cert_file: Path | None = None
    """PEM of the certificate that is shown at `also_hosts`, which are encrypted then."""
    also_key_file: Path | None = None
    """PEM of its key."""
    port: int = Field(default=8702, ge=0, le=65_535)
    """Port to listen on."""
    public_names: tuple[str, ...] = ()
    """Host names under which others reach this part, e.g. "readings.example.org"; addresses and
    localhost are always right."""
    key_file: Path
    """File of API keys, a line `KEY` or `NAME ROLE KEY` each (role read or operate), readable by
    its owner only; read again on change."""
    trusted_proxies: tuple[NetworkText, ...] = ()
    """Proxies in front, e.g. ["10.0.0.0/8"]: only they may name the client in X-Forwarded-For.
    Who shows wrong keys has to wait, by client; behind a proxy that is not named all are one."""
    access_urls: tuple[str, ...] = ()
    """Addresses of access servers as clients reach them; used to tell clients where a query's
    results can be read."""
    login: LoginConfig | None = None
    """Where people log in, whose groups have the role `read` or `operate`, or one of
    `[rights.roles]`."""
    rights: RightsConfig | None = None
    """Keys and tokens of readers that are known here, too, and what their grants reach."""
    requests: tuple[str, ...] | None = None
    """Names of requests of devices that somebody here answers; all others are refused at once.
    None: every request waits for its answer."""
    data_dir: Path = Path("ops")
    """Folder of the store of summaries, which is rebuilt from Kafka where it is lost."""
    seal_key_file: Path | None = None
    """Key that addresses of alerts' destinations are encrypted with in Kafka, the same on all
    operations servers; without it none can be kept. The form is push's `lease_key_file`."""
    alert_hosts: tuple[str, ...] = ()
    """Hosts of our own network that alerts may be sent to, e.g. a mail server; all others must have
    public addresses."""
    password_file: Path | None = None
    """File of the passwords of devices, which the MQTT broker reads; without it none are given
    here. For one operations server alone; claim codes are beside it."""
    broker: str = Field(default="", pattern=r"^$|^.+:\d{1,5}$")
    """host:port of the MQTT broker as devices reach it: sent along with passwords."""
    certificate_broker: str = Field(default="", pattern=r"^$|^.+:\d{1,5}$")
    """host:port of the MQTT listener that asks devices for certificates."""
    http_intake: str = Field(default="", pattern=r"^$|^https?://.+$")
    """Address of a bridge's `[http]` as devices reach it: sent along with passwords."""
    authority_dir: Path | None = None
    """Folder with `ca.crt` and `ca.key`, which sign devices' certificates here, and `revoked.pem`,
    which the broker reads; without it devices get no certificates. With it the broker encrypts."""
    lake_dir: Folder = Path("lake")
    """Where `edgewake lake` writes (a path, or file:///…), for `POST /v1/sql`; where nothing is
    there, SQL is answered from Kafka alone."""
    erase_settle_s: float = Field(default=150.0, ge=1, le=3600)
    """Seconds after which nothing of a stream comes from the analysis any more that was erased
    then; summaries are removed once more after it. More than twice its `summary_interval_s`."""
    faults: FaultsConfig | None = None
    push: PushProxyConfig | None = None
    kafka: KafkaConfig = KafkaConfig()

    @model_validator(mode="after")
    def _knows_everybody(self) -> OpsConfig:
        found = self.rights
        if found is not None and (found.anonymous is not None or found.local is not None):
            raise ValueError(
                "rights: nobody comes in here without a key, token or login: expected neither "
                "anonymous nor local"
            )
        ours = sorted(KEY_ROLES & set(() if found is None else found.roles))
        if ours:
            raise ValueError(
                f"rights.roles.{ours[0]}: the operations API has a role of this name: expected "
                "another one"
            )
        return self


def main(config_file: Path, *, verbose: bool) -> None:
    """Runs until SIGTERM or SIGINT.

    Exits with 0, 1 (a task died) or 2 (an unusable configuration).
    """
    log.set_up(verbose=verbose)
    http_part.run_part(lambda: run(config.load(OpsConfig, config_file)))


async def run(settings: OpsConfig) -> None:
    """Starts, serves and stops.

    Order of the stop: live streams end, no new requests, readers of tables close, producer flushed.
    """
    stop = asyncio.Event()
    http_part.stop_on_signals(stop)
    keys = Keys(settings.key_file)
    encrypted = tls.context(settings.also_cert_file, settings.also_key_file)
    listeners = http_part.bind_all((settings.host, *settings.also_hosts), settings.port)
    known = _known(settings)
    follower = Follower(settings.kafka, _store(settings), known.clock, random.Random())
    login = desk_of(settings.login, known.clock)
    clients = Clients(settings.trusted_proxies)
    rights = None if settings.rights is None else Rights(settings.rights, known.clock)
    services = _services(settings, known, _access(keys, clients, login, rights, known.clock))
    logger.addHandler(known.audit)
    works = {
        **_works(known, services),
        "summaries": follower.run(),
        "look": _look(known.tables, known.ring, keys, known.clock),
        "words": PartWords(
            settings.kafka,
            "ops",
            "ops",
            known.clock,
            why_not_ready=services.health.why_not_ready,
        ).run(),
        "live-end": _close_at(stop, known.ring),
        **({} if login is None else {"login": login.run()}),
        **({} if rights is None else {"rights": rights.run()}),
    }
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(work, name=name) for name, work in works.items()]
            await http_part.serve(
                HostCheck(make_app(services), settings.public_names),
                listeners,
                encrypted=encrypted,
                stop=stop,
                on_ready=lambda: _log_ready(settings),
                connections=Connections(clients=clients),
            )
            for task in background:
                task.cancel()
    finally:
        # The writers last: what a request began to write is confirmed, or said to be lost.
        await services.lookup.close()
        await services.replayer.close()
        services.summaries.close()
        services.writer.close()
        known.history.close()
        logger.removeHandler(known.audit)
        known.audit.close()


@dataclass(frozen=True, slots=True)
class _Known:
    """What this server knows, how it hears of it, and whether it judges alerts."""

    clock: Clock
    ready: asyncio.Event
    tables: OpsTables
    letters: DeadLetterIndex
    sealer: sealing.Sealer | None
    sender: Sender
    judging: Judging
    history: HistoryLog
    audit: AuditLog
    ring: EventRing
    reader: Reader


def _known(settings: OpsConfig) -> _Known:
    """The tables, with the reader that fills them from Kafka."""
    clock, ready, letters = SystemClock(), asyncio.Event(), DeadLetterIndex()
    tables = OpsTables(requests=RequestTable(served=settings.requests))
    sealer = (
        None if settings.seal_key_file is None else sealing.load(settings.seal_key_file, os.urandom)
    )
    caller = webhook.Caller(clock, allow_hosts=settings.alert_hosts)
    sender = Sender(lambda: tables.alerts.destinations, sealer, caller, settings.alert_hosts, clock)
    judging = Judging(settings.kafka, tables, sender, clock, _alert_id, ready)
    history = HistoryLog(settings.kafka, clock, lambda: judging.judge.leads)
    audit = AuditLog(settings.kafka, clock)
    ring = EventRing(secrets.token_hex(4), history.past)
    arrivals = _Arrivals(tables, history, audit, ring, clock)
    reader = Reader(
        settings.kafka,
        letters=letters,
        on_changes=arrivals.on_changes,
        on_offsets=arrivals.on_offsets,
        rng=random.Random(),
        ready=ready,
    )
    return _Known(
        clock, ready, tables, letters, sealer, sender, judging, history, audit, ring, reader
    )


def _services(settings: OpsConfig, known: _Known, access: Access) -> Services:
    """What the routes use."""
    clock, tables = known.clock, known.tables
    lookup = KafkaLookup(settings.kafka, clock)
    writer = TableWriter(settings.kafka, tables, clock)
    registry = QueryService(
        settings.kafka,
        writer,
        tables,
        clock=clock,
        new_id=_id,
        check=_check,
        access_urls=settings.access_urls,
    )
    past, ready = known.history.past, known.ready
    system = SystemLook(tables, registry, known.letters, lookup, clock, past, ready)
    judge = known.judging.judge
    return Services(
        tables=tables,
        alerts=_alerts(settings, known, writer),
        system=system,
        boards=BoardDesk(writer, tables, clock),
        named=NamedDesk(writer, tables, clock),
        maps=MapDesk(writer, tables, clock, _id),
        clients=ClientDesk(writer, tables, clock),
        audit=known.audit,
        registry=registry,
        previews=PreviewDesk(writer, tables, clock=clock, new_id=_id),
        repairs=RepairDesk(writer, tables, clock=clock, new_id=_id),
        down=DeviceCommands(writer, tables, clock=clock, new_id=lambda: secrets.token_hex(8)),
        requests=Replies(writer, tables, clock=clock),
        editor=_editor(settings, known, writer),
        retention=RetentionDesk(settings.kafka, writer, clock),
        eraser=_eraser(settings, known, writer, registry),
        writer=writer,
        lookup=lookup,
        letters=known.letters,
        replayer=LetterReplayer(settings.kafka, clock),
        ring=known.ring,
        past=past,
        problems=ProblemDesk(writer, tables, system, clock, lambda: judge.leads),
        access=access,
        clock=clock,
        metrics=_metrics(settings, tables, clock),
        ready=ready,
        health=known.reader.health,
        summaries=SummaryReads(_store(settings)),
        asking=Asking(settings.lake_dir, settings.kafka),
        credentials=None
        if settings.password_file is None
        else CredentialDesk(settings.password_file, clock, os.urandom, settings.authority_dir),
        broker=settings.broker,
        certificate_broker=settings.certificate_broker,
        access_urls=settings.access_urls,
        faults=None if settings.faults is None else FaultControl(settings.faults),
        push=None if settings.push is None else PushProxy(settings.push, os.urandom),
        http_intake=settings.http_intake,
        enrolling_url=_network_url(settings),
    )


def _works(known: _Known, services: Services) -> dict[str, Coroutine[Any, Any, None]]:
    """What the services do in the background until the server stops, by the names of tasks."""
    tables, ready, clock = known.tables, known.ready, known.clock
    judge, system = known.judging.judge, services.system
    clean_ups = (services.registry.clean_up, services.clients.clean_up)
    return {
        "reader": known.reader.run(),
        "answers": services.down.keep_answers(),
        "requests": services.requests.run(ready),
        "settle": _settle_when(ready),
        "clean-up": _clean_up(clean_ups, ready, clock),
        "alerts": known.judging.run(),
        "erasures": services.eraser.run(ready),
        "levels": look_again_and_again(judge, tables, system, clock),
        "problems": services.problems.run(),
        "history": known.history.run(),
        "audit": known.audit.run(),
    }


def _alerts(settings: OpsConfig, known: _Known, writer: TableWriter) -> AlertDesk:
    return AlertDesk(
        writer,
        known.tables,
        clock=known.clock,
        new_id=_alert_id,
        random_bytes=os.urandom,
        sealer=known.sealer,
        sender=known.sender,
        allow_hosts=settings.alert_hosts,
    )


def _editor(settings: OpsConfig, known: _Known, writer: TableWriter) -> CatalogueEditor:
    async def make_topic(name: str) -> None:
        await writer.blocking(lambda: topic_admin.ensure_topics(settings.kafka, [name]))

    return CatalogueEditor(writer, known.tables, known.clock, make_topic)


def _eraser(
    settings: OpsConfig, known: _Known, writer: TableWriter, registry: QueryService
) -> EraserDesk:
    return EraserDesk(
        settings.kafka,
        writer,
        known.tables,
        registry,
        known.clock,
        new_id=_id,
        settle_s=settings.erase_settle_s,
        has_lake=lambda: (settings.lake_dir / manifest.NAME).exists(),
    )


def _store(settings: OpsConfig) -> Path:
    """The file of the store of summaries."""
    return settings.data_dir / "summaries.db"


def _id() -> str:
    return secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """What becomes of what the reader brings, on the event loop."""

    tables: OpsTables
    history: HistoryLog
    audit: AuditLog
    ring: EventRing
    clock: Clock

    def on_changes(self, changes: list[Change], is_news: bool) -> None:
        """Rows of history and audit go there, all others into the tables, and news to readers."""
        now = self.clock.now_ms()
        takers = {topics.HISTORY: self.history.take, topics.AUDIT: self.audit.take}
        for change in changes:
            if change.topic in takers:
                takers[change.topic](change)
        changes = [change for change in changes if change.topic not in takers]
        self.tables.is_loaded = is_news
        events = apply(self.tables, changes, now=now)
        if is_news:
            self.ring.publish(events)

    def on_offsets(
        self, found: dict[str, TopicOffsets], sequenced: Mapping[int, int] | None
    ) -> None:
        """Kafka's offsets, from which rates and lags are computed."""
        self.tables.sample(found, sequenced, now_s=self.clock.monotonic_s())


def _access(
    keys: Keys, clients: Clients, desk: LoginDesk | None, rights: Rights | None, clock: Clock
) -> Access:
    """Who may do what: by a key or token, a link that is opened once, a session, or a login."""
    door = KeyDoor(keys, clock)
    roles = Roles(RightsConfig() if rights is None else rights.config)
    if desk is not None and rights is not None:
        desk.on_end.append(rights.log_out)
    return Access(
        keys,
        door,
        clients,
        Passes(clock, _secret, TICKET_LIFE_S),
        Passes(clock, _secret, SESSION_LIFE_S),
        None if desk is None else People(desk, roles),
        None if rights is None else Readers(rights, clock, door.shown),
    )


def _metrics(settings: OpsConfig, tables: OpsTables, clock: Clock) -> CollectorRegistry:
    metrics = CollectorRegistry()
    metrics.register(TablesCollector(tables))
    process_metrics.register(
        metrics, "ops", certificates=settings.kafka.security.certificates, clock=clock
    )
    return metrics


def _network_url(settings: OpsConfig) -> str:
    """Returns the address of the API on the network, if it listens there."""
    if not settings.also_hosts:
        return ""
    host = settings.also_hosts[0]
    named = f"[{host}]" if ":" in host else host
    scheme = "http" if settings.also_cert_file is None else "https"
    return f"{scheme}://{named}:{settings.port}"


def _check(text: str, streams: Mapping[str, Stream]) -> Checked:
    # The SQL parser needs 30 MB, so it is imported when a query is registered.
    from edgewake.cloud.queries.explain import described
    from edgewake.cloud.queries.query_file import UnknownStream, check_query_file, parse

    try:
        return described(check_query_file(text, streams))
    except UnknownStream as error:
        raise NotThereYet(described(parse(text)), error) from error


def _alert_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


def _secret() -> str:
    return secrets.token_urlsafe(24)


async def _look(tables: OpsTables, ring: EventRing, keys: Keys, clock: Clock) -> None:
    while True:
        await clock.sleep(LOOK_EVERY_S)
        keys.reload()
        is_more = True
        while is_more:
            events, is_more = tables.look(now=clock.now_ms())
            ring.publish(events)
            await clock.sleep(0)


async def _settle_when(ready: asyncio.Event) -> None:
    await ready.wait()
    settle()


def apply(tables: OpsTables, changes: Sequence[Change], *, now: int) -> list[Event]:
    """Applies changes to the tables, with the cycle collector paused.

    Loaded rows live long, and the collector would scan them again and again.
    """
    events = [event for change in changes for event in tables.apply(change, now=now)]
    if not tables.is_loaded:
        gc.freeze()
    return events


def settle() -> None:
    """Exempts the loaded tables from Python's cycle collector.

    It would otherwise pause for 50 ms at times to scan 100,000 devices.
    """
    gc.collect()
    gc.freeze()


async def _clean_up(
    works: Sequence[Callable[[], Awaitable[None]]], ready: asyncio.Event, clock: Clock
) -> None:
    await ready.wait()
    while True:
        for work in works:
            try:
                await work()
            except Unavailable as error:
                logger.debug("not cleaned up: %s", error)
        await clock.sleep(CLEAN_UP_EVERY_S)


async def _close_at(stop: asyncio.Event, ring: EventRing) -> None:
    await stop.wait()
    ring.close()


def _log_ready(settings: OpsConfig) -> None:
    logger.info(
        "operations API at http://%s:%d",
        settings.host,
        settings.port,
        extra={"event": "part.ready"},
    )
