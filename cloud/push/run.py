"""The push proxy's process: wiring, start and stop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field

from edgewake.cloud import process_metrics
from edgewake.cloud.calls import sealing
from edgewake.cloud.calls.webhook import Caller
from edgewake.cloud.client_share import SHARE_DEFAULT, Clients, NetworkText
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.cursor_keys import KeyFile
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.reader import People, people_of
from edgewake.cloud.part_words import PartWords
from edgewake.cloud.push.app import make_app
from edgewake.cloud.push.counting.watchers import Watchers
from edgewake.cloud.push.deliveries import routes as delivery_routes
from edgewake.cloud.push.deliveries.courier import Services as DeliveryServices
from edgewake.cloud.push.deliveries.deliveries import Deliveries
from edgewake.cloud.push.expulsions import Expulsions
from edgewake.cloud.push.groups import routes as group_routes
from edgewake.cloud.push.groups.groups import GROUPS_MAX, Groups
from edgewake.cloud.push.groups.groups import WAITING_MAX as TAKING_MAX
from edgewake.cloud.push.leases.lease_member import Membership
from edgewake.cloud.push.leases.lease_reads import LeaseReads
from edgewake.cloud.push.metrics import Metrics
from edgewake.cloud.push.peers import Peers
from edgewake.cloud.push.proxy import Proxy
from edgewake.cloud.push.waking.relay import WAITING_MAX as RELAYED_MAX
from edgewake.cloud.push.waking.services import Services
from edgewake.cloud.push.waking.waker import PROOFS_PER_SESSION
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.rights import Rights, rights_of
from edgewake.cloud.web import http_part, tls
from edgewake.cloud.web.connections import CONNECTIONS_MAX, Connections
from edgewake.cloud.web.file_limit import raise_file_limit
from edgewake.cloud.web.host import HostCheck
from edgewake.protocol import config, log
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.errors import ConfigError

logger = logging.getLogger("edgewake.push")

LOOKUP_THREADS: Final = 32
"""Names looked up at once; a resolver that hangs holds one for some seconds."""


class PushConfig(config.Config):
    """What a push proxy needs to know."""

    name: str = "push-1"
    """Name of this proxy; another one with the same name takes over its leases at once."""
    url: str | None = None
    """Where other proxies reach this one, e.g. "http://push-1:8703"; by default `host` and
    `port`."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    also_hosts: tuple[str, ...] = Field(default=(), max_length=8)
    """More addresses to listen on, e.g. of the local network: ["192.168.1.5"]."""
    also_cert_file: Path | None = None
    """PEM of the certificate that is shown at `also_hosts`, which are encrypted then."""
    also_key_file: Path | None = None
    """PEM of its key."""
    port: int = Field(default=8703, ge=0, le=65_535)
    """Port to listen on."""
    public_names: tuple[str, ...] = ()
    """Host names under which others reach this part, e.g. "readings.example.org"; addresses and
    localhost are always right."""
    trusted_proxies: tuple[NetworkText, ...] = ()
    """Proxies in front of this one, and the other push proxies, e.g. ["10.0.0.0/8"]: only they may
    name the client that they ask for, in X-Forwarded-For."""
    address_share: float = Field(default=SHARE_DEFAULT, gt=0, le=1)
    """The part of `leases_max`, of `scanned_filters_max` and of connections that one client address
    may hold; an IPv6 network of 64 bits is one. 1 where all clients come from one address."""
    allow_origins: tuple[str, ...] = ()
    """Other sites whose pages may ask here, e.g. "https://dash.example.org"; none by default."""
    cursor_key_file: Path
    """Keys that sign cursors: the access servers' file, read again when it changes."""
    lease_key_file: Path
    """Keys that endpoints and secrets are encrypted with in Kafka: 64 hex digits a line, the same
    for all proxies. The first encrypts, all decrypt. Without a key that some lease was encrypted
    with the proxy does not start."""
    allow_hosts: tuple[str, ...] = ()
    """Endpoint hosts that may have any address and port and plain http. Empty in production."""
    ca_file: Path | None = None
    """Certificates to trust beside the system's, PEM, for endpoints with a private authority."""
    leases_max: int = Field(default=100_000, ge=1)
    """Leases of this proxy at most, some 2 KB of memory each; one more is answered 429."""
    scanned_filters_max: int = Field(default=1000, ge=1)
    """Different filters of one set of streams at most that an index cannot find, because they
    demand no value of any field. Each is evaluated for every event: 1000 cost some milliseconds an
    event; one more is answered 429."""
    session_timeout_s: float = Field(default=6, ge=1, le=60)
    """Seconds of silence after which other proxies take this one's leases over. 6 is the least that
    a broker allows by default (`group.min.session.timeout.ms`)."""
    kafka: KafkaConfig = KafkaConfig()
    rights: RightsConfig | None = None
    """Who may be woken for what, as for the access servers. Without it anybody on this machine may
    have everything."""
    login: LoginConfig | None = None
    """Where people log in: the same as of the access servers."""


def main(config_file: Path, *, verbose: bool) -> None:
    """Run until SIGTERM or SIGINT.

    Exits with 0, 1 (a task died) or 2 (an unusable configuration).
    """
    log.set_up(verbose=verbose)
    raise_file_limit()
    http_part.run_part(lambda: run(config.load(PushConfig, config_file)))


async def run(settings: PushConfig) -> None:
    """Start, serve, stop.

    Order of the stop: no new requests, calls cut off, group left; the leases stay in Kafka.
    """
    stop = asyncio.Event()
    http_part.stop_on_signals(stop)
    # Names of endpoints' hosts are looked up in threads, and a slow name server must not hold up
    # more than these.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(LOOKUP_THREADS, "lookup"))
    encrypted = tls.context(settings.also_cert_file, settings.also_key_file)
    listeners = http_part.bind_all((settings.host, *settings.also_hosts), settings.port)
    registry = CollectorRegistry()
    parts = _made(settings, registry)
    clients = Clients(settings.trusted_proxies)
    app = _app(settings, parts, registry, clients)
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(http_part.named(name, coroutine), name=name)
                for name, coroutine in parts.lives().items()
            ]
            await http_part.serve(
                HostCheck(app, settings.public_names),
                listeners,
                encrypted=encrypted,
                stop=stop,
                on_ready=lambda: _log_ready(settings),
                connections=connections_of(settings, clients),
            )
            for task in background:
                task.cancel()
    finally:
        # No call goes out once the group is left: another proxy may have these leases then.
        await parts.proxy.close()
        await parts.peers.close()


@dataclass(frozen=True)
class _Parts:
    """What a push proxy is made of."""

    clock: Clock
    keys: KeyFile
    watch: Watchers
    rights: Rights
    people: People | None
    proxy: Proxy
    deliveries: Deliveries
    groups: Groups
    member: Membership
    expulsions: Expulsions
    reads: LeaseReads
    peers: Peers
    words: PartWords

    def lives(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs until the proxy stops, by the name of its task."""
        return {
            "membership": self.member.run(),
            "reads": self.reads.run(),
            "watch": self.watch.run(),
            "cursor-keys": self.keys.run(self.clock),
            "leases": self.proxy.run(),
            "expulsions": self.expulsions.run(),
            "deliveries": self.deliveries.run(),
            "groups": self.groups.run(),
            "rights": self.rights.run(),
            "words": self.words.run(),
            **({} if self.people is None else {"login": self.people.desk.run()}),
        }


def _made(settings: PushConfig, registry: CollectorRegistry) -> _Parts:
    """Makes all parts, and connects those that hear of each other. Nothing runs yet."""
    own_url = settings.url or f"http://{settings.host}:{settings.port}"
    clock, rng = SystemClock(), random.Random()
    sealer = sealing.load(settings.lease_key_file, os.urandom)
    caller = Caller(clock, allow_hosts=settings.allow_hosts, tls=_tls(settings.ca_file))
    keys = KeyFile(settings.cursor_key_file)
    watch = Watchers(
        settings.kafka,
        keys.codec,
        clock,
        name=settings.name,
        scanned_filters_max=settings.scanned_filters_max,
        client_share=settings.address_share,
    )
    metrics = Metrics(registry)
    process_metrics.register(
        registry,
        "push",
        certificates=settings.kafka.security.certificates,
        clock=clock,
    )
    metrics.behind.set_function(lambda: watch.behind)
    rights = rights_of(settings, clock)
    session_s = settings.session_timeout_s
    share = settings.address_share
    proxy = Proxy(
        Services(watch, caller, sealer, clock, rng, metrics, rights, session_s),
        random_bytes=os.urandom,
        leases_max=settings.leases_max,
        client_share=share,
    )
    proof_s = session_s / PROOFS_PER_SESSION
    deliveries = Deliveries(
        DeliveryServices(watch.hub, caller, sealer, rights, clock, rng, metrics, proof_s=proof_s),
        random_bytes=os.urandom,
        client_share=share,
    )
    groups = Groups(watch.hub, clock, random_bytes=os.urandom, client_share=share)
    member = Membership(
        settings.kafka,
        settings.name,
        own_url,
        owner=proxy,
        owners_of_rows=[deliveries, groups],
        clock=clock,
        rng=rng,
        session_timeout_s=session_s,
    )
    expulsions = Expulsions(proxy, deliveries, groups, clock)
    watch.hub.catalogue.on_ending = expulsions.hear
    return _Parts(
        clock=clock,
        keys=keys,
        watch=watch,
        rights=rights,
        people=people_of(settings.login, rights, clock),
        proxy=proxy,
        deliveries=deliveries,
        groups=groups,
        member=member,
        expulsions=expulsions,
        reads=LeaseReads(settings.kafka, settings.name, on_read=proxy.client_reads, rng=rng),
        peers=Peers(settings.kafka, clock, own_url),
        words=PartWords(
            settings.kafka,
            "push",
            settings.name,
            clock,
            why_not_ready=lambda: "" if proxy.is_ready else _progress(member, proxy),
        ),
    )


def _app(
    settings: PushConfig, parts: _Parts, registry: CollectorRegistry, clients: Clients
) -> FastAPI:
    """The application with the routes of leases, deliveries and groups."""
    app = make_app(
        parts.proxy,
        parts.peers,
        registry,
        clients=clients,
        allow_origins=settings.allow_origins,
        progress=lambda: _progress(parts.member, parts.proxy),
        rights=parts.rights,
        people=parts.people,
        clock=parts.clock,
    )
    delivery_routes.add_to(app, parts.deliveries, clients)
    group_routes.add_to(app, parts.groups, clients, parts.rights)
    return app


def connections_of(settings: PushConfig, clients: Clients) -> Connections:
    """Places for all who may wait, and as many as any part has for who is answered at once."""
    waiting = RELAYED_MAX + GROUPS_MAX * TAKING_MAX
    most = waiting + CONNECTIONS_MAX
    return Connections(most, share=settings.address_share, clients=clients)


def _progress(member: Membership, proxy: Proxy) -> str:
    if member.partitions_reading:
        return (
            f"reading {member.partitions_reading} partitions of leases, {member.records_read} "
            "records so far"
        )
    return (
        "taking leases over"
        if proxy.partitions
        else "other proxies have the leases, or Kafka is away"
    )


def _log_ready(settings: PushConfig) -> None:
    logger.info(
        "push proxy at http://%s:%d",
        settings.host,
        settings.port,
        extra={"event": "part.ready", "proxy": settings.name},
    )


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # an ssl.SSLError too
            raise ConfigError(f"ca_file = {str(ca_file)!r}: {error}") from error
    return context
