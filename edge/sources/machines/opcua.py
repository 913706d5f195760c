"""Subscribes to values of an OPC UA server, by asyncua: each change is a reading.

It has the time that its source gave it; changes of one moment are one reading.

A connection that is lost is opened again within RESUME_S with the same subscription, so the server
sends what it kept meanwhile (OPC 10000-4, section 6.7). Where it has forgotten the subscription, or
the source was away for longer, it sends the values that it has; one whose time is known already is
not taken again, and one that is new may have changed more than once: that is said as a loss. So is
what a server dropped because its queue was full.

Of redundant servers, which have the same values with the same times, all are subscribed to at once
(OPC 10000-4, section 6.6.2: hot). Each change is taken from the one that tells it first, so while
one of them lives nothing is missed when another dies, and nothing is taken twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import orjson
from asyncua import Client, ua
from asyncua.common.subscription import Subscription
from asyncua.crypto import security_policies
from asyncua.observer import Observer, SubscriptionEvent

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.address import resolved
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.web.web_config import read_token
from edgewake.protocol.errors import RejectReason, Unavailable
from edgewake.protocol.names import is_field
from edgewake.protocol.plain import Check, ConfigTable, key

# It writes each message of the server, a kilobyte each, and warns of each attempt to connect again.
logging.getLogger("asyncua").setLevel(logging.ERROR)

NODES_MAX: Final = 200
"""Values of one source; a reading may have as many fields."""
WAITING_MAX: Final = 10_000
"""Changes that wait for the log; those after them are dropped, counted."""
SERVERS_MAX: Final = 4
"""Redundant servers of one source."""
TOLD_MAX: Final = 2048
"""Changes of one value that are remembered, where servers are redundant: so far one of them may be
behind another, some seconds at hundred changes a second."""
AGAIN_S: Final = 2.0
"""Seconds after which a redundant server that was lost is asked again."""
RESUME_S: Final = 20.0
"""Seconds in which a lost connection may be opened again with the same subscription. After them the
source says that the server is away. Servers keep some minutes, and QUEUE_MAX changes."""
REPLAY_TIMES: Final = 2
"""A new connection is made after RESUME_S times this. asyncua asks for what it missed until the
server has no more, and there are servers that answer to any number, such as asyncua's own."""
LOOK_S: Final = 1.0
"""Seconds between two looks whether the server is there."""
QUEUE_MAX: Final = 1000
"""Changes of one value that a server keeps between two messages; without, it keeps the last."""
OVERFLOW: Final = 0x0480
"""Bits of a status code: a value of a queue that was full, so others before it were dropped
(OPC 10000-4, section 7.39.1)."""
UNIT_PATH: Final = ua.RelativePath(
    [
        ua.RelativePathElement(
            ua.NodeId(ua.ObjectIds.HasProperty), False, True, ua.QualifiedName("EngineeringUnits")
        )
    ]
)
"""From a value to the property that says its unit (OPC 10000-8, section 5.3.2.3)."""
DEFAULT_PORT: Final = 4840
POLICIES: Final = {
    "Basic256Sha256": security_policies.SecurityPolicyBasic256Sha256,
    "Aes128Sha256RsaOaep": security_policies.SecurityPolicyAes128Sha256RsaOaep,
    "Aes256Sha256RsaPss": security_policies.SecurityPolicyAes256Sha256RsaPss,
}


def _url(text: str) -> str:
    found = urlsplit(text)
    if found.scheme != "opc.tcp" or not found.hostname or found.password is not None:
        raise ValueError("expected opc.tcp://HOST:PORT/…, without a password")
    return text


def _field(name: str) -> str:
    if not is_field(name):
        raise ValueError("expected a name of a field")
    return name


def _node(text: str) -> str:
    ua.NodeId.from_string(text)
    return text


class NodeConfig(ConfigTable):
    """A value of the server."""

    name: Annotated[str, Check(_field)]
    """The field of the reading."""
    id: Annotated[str, Check(_node)]
    """Its node: `ns=2;s=Boiler.Temperature`, `ns=3;i=1001`."""


class AlsoConfig(ConfigTable):
    """A redundant server."""

    url: Annotated[str, Check(_url)]
    """Its address."""
    server_cert_file: Path | None = None
    """Its certificate, with `security`."""


class OpcUaConfig(SourceConfig):
    """Values of an OPC UA server that is subscribed to."""

    type: Literal["opcua"]
    url: Annotated[str, Check(_url)]
    """Its address, e.g. `opc.tcp://plc:4840/`."""
    also: tuple[AlsoConfig, ...] = key(default=(), max_length=SERVERS_MAX - 1)
    """Servers that have the same values with the same times. All are subscribed to, and each change
    is taken once; the source fails only where none of them is there."""
    node: tuple[NodeConfig, ...] = key(min_length=1, max_length=NODES_MAX)
    """Its values."""
    publish_s: float = key(default=1.0, ge=0.01, le=3600)
    """Seconds between two messages of the server; each has all changes since the one before."""
    timeout_s: float = key(default=5.0, gt=0, le=60)
    """Seconds that the server has for an answer."""
    username: str | None = None
    """User name; none: anonymous."""
    password_file: Path | None = None
    """File whose first line is the password, mode 0600. It is sent encrypted with `security`."""
    security: Literal["none", "Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss"] = (
        "none"
    )
    """Security policy; messages are signed and encrypted with any but none. It needs the three
    files."""
    cert_file: Path | None = None
    """Our certificate (PEM or DER)."""
    key_file: Path | None = None
    """Its key, mode 0600."""
    server_cert_file: Path | None = None
    """The server's certificate: another one is not talked to."""
    application_uri: str = "urn:edgewake:agent"
    """What our certificate calls us (its subjectAltName)."""

    def __post_init__(self) -> None:
        names = [node.name for node in self.node]
        if len(set(names)) < len(names):
            raise ValueError("node: two of the same name; expected each name once")
        files = (self.cert_file, self.key_file, self.server_cert_file)
        if self.security != "none" and None in files:
            raise ValueError("security: expected cert_file, key_file and server_cert_file with it")
        if self.security != "none" and None in [one.server_cert_file for one in self.also]:
            raise ValueError("also: expected server_cert_file of each, with security")
        urls = [one.url for one in self.servers]
        if len(set(urls)) < len(urls):
            raise ValueError("also: expected each server once")
        if self.password_file is not None and self.security == "none":
            raise ValueError("password_file: expected `security` with it, which encrypts it")

    @property
    def servers(self) -> tuple[AlsoConfig, ...]:
        """All servers, the main one first."""
        return (AlsoConfig(url=self.url, server_cert_file=self.server_cert_file), *self.also)

    def source(self, context: SourceContext) -> OpcUa:
        return OpcUa(self, context)

    def owns(self) -> str:
        return f"{self.url} for this stream"


class Change:
    """A value that the server told."""

    __slots__ = ("is_after_drop", "mark", "name", "t", "value")

    def __init__(
        self, name: str, value: Any, moment: datetime | None, *, is_after_drop: bool = False
    ) -> None:
        """`is_after_drop`: did its server drop others before it, for want of room?"""
        self.name, self.value, self.t = name, value, ms_of(moment)
        self.is_after_drop = is_after_drop
        self.mark = None if moment is None else (moment, str(value))
        """Tells it from other changes of the value."""


class Told:
    """Which changes were taken already. Pure."""

    def __init__(self, most: int, position: str | None = None) -> None:
        """`most`: changes of one value that are remembered. `position`: what `newest` gave."""
        self._most = most
        self._marks: dict[str, dict[tuple[datetime, str], None]] = {
            name: {(datetime.fromisoformat(moment), value): None}
            for name, (moment, value) in (orjson.loads(position) if position else {}).items()
        }

    def newest(self) -> str:
        """The last change of each value: a server sends it again to an agent that was restarted."""
        marks = {name: next(reversed(ones)) for name, ones in self._marks.items()}
        return orjson.dumps(
            {name: (moment.isoformat(), value) for name, (moment, value) in marks.items()}
        ).decode()

    def names(self) -> frozenset[str]:
        """Those that changes are known of."""
        return frozenset(self._marks)

    def is_new(self, one: Change) -> bool:
        """Is it taken for the first time? From now on it is not. What has no time always is."""
        if one.mark is None:
            return True
        marks = self._marks.setdefault(one.name, {})
        if one.mark in marks:
            return False
        marks[one.mark] = None
        if len(marks) > self._most:
            del marks[next(iter(marks))]
        return True


class OpcUa:
    """Subscribes, and queues a reading for each change."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: OpcUaConfig, context: SourceContext) -> None:
        self._config = config
        self._clock = context.clock
        self._name = f"opcua:{config.url}"
        self._told = Told(TOLD_MAX if config.also else 1, context.position(self._name))
        self._away: dict[str, str] = {}
        """Redundant servers that are not there → why."""
        self._followed: set[str] = set()
        """Addresses of the servers that are subscribed to now."""
        self._unheard: set[str] = set()
        """Values that nothing came of yet since nothing was subscribed to."""

    async def run(self, intake: Intake) -> None:
        servers = self._config.servers
        if len(servers) == 1:
            await self._once(intake, servers[0])
            return
        self._away.clear()
        tasks = [asyncio.create_task(self._keep(intake, one), name=one.url) for one in servers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _keep(self, intake: Intake, server: AlsoConfig) -> None:
        """One of several, for ever. Raises Unavailable where all of them are away."""
        while True:
            try:
                await self._once(intake, server)
            except Unavailable as error:
                self._away[server.url] = str(error)
                if len(self._away) == len(self._config.servers):
                    raise Unavailable("; ".join(self._away.values())) from error
                intake.remark(f"{server.url}: away, others are read")
            await self._clock.sleep(AGAIN_S)

    async def _once(self, intake: Intake, server: AlsoConfig) -> None:
        """Raises Unavailable."""
        try:
            await self._follow(intake, server)
        except (OSError, TimeoutError, ua.UaError) as error:
            raise Unavailable(f"{server.url}: {error or type(error).__name__}") from error
        finally:
            self._followed.discard(server.url)

    async def _follow(self, intake: Intake, server: AlsoConfig) -> None:
        """Until the connection is lost. Raises OSError, TimeoutError, ua.UaError."""
        client = await self._client(server)
        async with client:
            names = {node.id: node.name for node in self._config.node}
            waiting = Waiting(intake, names, self._begin)
            client.uaclient.observer = waiting
            subscription, refused = await self._subscribe(client, waiting)
            for name, why in refused.items():
                intake.remark(f"{name}: {why}")
            if len(refused) == len(names):
                raise OSError(f"none of the nodes: {next(iter(refused.values()))}")
            await self._note_units(client, intake)
            self._away.pop(server.url, None)
            if self._config.also:
                intake.remark(f"{server.url}: subscribed")
            if not self._followed:
                self._begin()
            self._followed.add(server.url)
            asked_s = self._clock.monotonic_s()
            while True:
                changes = await waiting.next(LOOK_S)
                await self._take(intake, changes)
                await client.check_connection()  # waits while the connection is opened again
                if subscription.subscription_id is None:
                    raise OSError("the server forgot the subscription")
                if waiting.is_forgotten:
                    # asyncua's new one leaves out nodes that the server did not have yet. Another
                    # connection would take seconds, in which values change.
                    await subscription.delete()
                    waiting.is_forgotten = False
                    subscription, missing = await self._subscribe(client, waiting)
                    if missing != refused:
                        raise OSError("the server forgot the subscription and is not whole yet")
                    self._begin()
                now_s = self._clock.monotonic_s()
                if not subscription._replaying:
                    asked_s = now_s
                elif now_s - asked_s > REPLAY_TIMES * RESUME_S:
                    raise OSError("the server has no end of what was missed")

    async def _subscribe(
        self, client: Client, waiting: Waiting
    ) -> tuple[Subscription, dict[str, str]]:
        """To all values; those that the server refuses → why."""
        subscription = await client.create_subscription(
            self._config.publish_s * 1000, waiting, queue_maxsize=WAITING_MAX
        )
        nodes = [client.get_node(node.id) for node in self._config.node]
        handles = await subscription.subscribe_data_change(nodes, queuesize=QUEUE_MAX)
        refused = {
            node.name: f"{node.id}: {handle.name}"
            for node, handle in zip(self._config.node, handles, strict=True)
            if isinstance(handle, ua.StatusCode)
        }
        return subscription, refused

    async def _note_units(self, client: Client, intake: Intake) -> None:
        """Tell the units that the server knows; without them its values are as good."""
        names = {node.name: client.get_node(node.id).nodeid for node in self._config.node}
        try:
            found = await client.uaclient.translate_browsepaths_to_nodeids(
                [ua.BrowsePath(nodeid, UNIT_PATH) for nodeid in names.values()]
            )
            places = {
                name: client.get_node(one.Targets[0].TargetId)
                for name, one in zip(names, found, strict=True)
                if one.StatusCode.is_good() and one.Targets
            }
            told = await client.read_attributes([*places.values()]) if places else []
        except (ua.UaError, TimeoutError) as error:
            intake.remark(f"units cannot be read: {error or type(error).__name__}")
            return
        units = {name: unit_of(one) for name, one in zip(places, told, strict=True)}
        intake.note_units({name: unit for name, unit in units.items() if unit})

    def _begin(self) -> None:
        """There was a time in which nothing was subscribed to."""
        self._unheard = set(self._told.names())

    async def _take(self, intake: Intake, changes: list[Change]) -> None:
        new: list[Change] = []
        is_missed = False
        for one in changes:
            is_new = self._told.is_new(one)
            # What comes first of a value tells whether it changed; the servers' ways end apart.
            is_missed = is_missed or (is_new and one.name in self._unheard)
            self._unheard.discard(one.name)
            if not is_new:
                continue  # of redundant servers, another one has told it, and what was before it
            new.append(one)
            if one.is_after_drop:
                intake.refuse(RejectReason.QUOTA, f"{one.name}: the server's queue was full")
        if is_missed:
            intake.miss("changes while nothing was subscribed to")
        if readings := intake.check_all([*bodies(new)]):
            await intake.put(readings, position=(self._name, self._told.newest()))

    async def _client(self, server: AlsoConfig) -> Client:
        config = self._config
        url = urlsplit(server.url)
        # Looked up beside asyncua, whose look-up would hold up the stop of the agent.
        await resolved(url.hostname or "", url.port or DEFAULT_PORT)
        client = Client(
            server.url,
            timeout=config.timeout_s,
            auto_reconnect=not config.also,  # redundant servers stand in for one another
            reconnect_max_delay=AGAIN_S,
            reconnect_request_timeout=RESUME_S,
        )
        client.application_uri = config.application_uri
        client.name = client.description = "edgewake"
        if config.security != "none":
            assert config.cert_file is not None
            assert config.key_file is not None
            await client.set_security(
                POLICIES[config.security],
                config.cert_file,
                config.key_file,
                server_certificate=str(server.server_cert_file),
            )
        if config.username is not None:
            client.set_user(config.username)
            if config.password_file is not None:
                client.set_password(read_token(config.password_file))
        return client


def unit_of(told: Any) -> str:
    """The unit in what a server answers of EngineeringUnits; empty: none. Pure."""
    found = None if told.Value is None else told.Value.Value
    return (found.DisplayName.Text or "").strip() if isinstance(found, ua.EUInformation) else ""


def bodies(changes: Iterable[Change]) -> Iterator[dict[str, Any]]:
    """Changes of one moment are one object. Pure."""
    body: dict[str, Any] = {}
    for one in changes:
        if body and (one.name in body or body.get("t") != one.t):
            yield body
            body = {}
        if one.t is not None:
            body["t"] = one.t
        body[one.name] = one.value
    if body:
        yield body


class Waiting(Observer):  # type: ignore[misc]  # asyncua has no types
    """Changes that the server told and that were not taken yet."""

    def __init__(self, intake: Intake, names: dict[str, str], on_new: Callable[[], None]) -> None:
        """`on_new`: called where the server forgot the subscription, and there is another one."""
        self._intake = intake
        self._on_new = on_new
        self._names = {ua.NodeId.from_string(node): name for node, name in names.items()}
        self._changes: deque[Change] = deque()
        """At most WAITING_MAX."""
        self._came = asyncio.Event()
        self.is_forgotten = False
        """Has the server forgotten the subscription?"""

    def on_subscription_event(self, _id: int | None, event: SubscriptionEvent) -> None:
        """Called by asyncua, which makes a new subscription where the server forgot the old."""
        if event is SubscriptionEvent.RECREATED:
            self.is_forgotten = True
            self._on_new()

    def datachange_notification(self, node: Any, value: Any, data: Any) -> None:
        """Called by asyncua for each change."""
        if len(self._changes) >= WAITING_MAX:
            self._intake.refuse(RejectReason.QUOTA, "no room for a change")
            return
        name = self._names[node.nodeid]
        told = data.monitored_item.Value
        if not told.StatusCode.is_good():
            self._intake.remark(f"{name}: {told.StatusCode.name}")
            value = None
        moment = told.SourceTimestamp or told.ServerTimestamp
        is_after_drop = told.StatusCode.value & OVERFLOW == OVERFLOW
        self._changes.append(Change(name, plain(value), moment, is_after_drop=is_after_drop))
        self._came.set()

    async def next(self, time_s: float) -> list[Change]:
        """All there are; waits so long for one."""
        if not self._changes:
            self._came.clear()
            try:
                async with asyncio.timeout(time_s):
                    await self._came.wait()
            except TimeoutError:
                return []
        found = list(self._changes)
        self._changes.clear()
        return found


def plain(value: Any) -> Any:
    """A value as JSON would say it. Pure."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.Text if isinstance(value, ua.LocalizedText) else str(value)


def ms_of(moment: datetime | None) -> int | None:
    """In ms since 1970; asyncua's times are UTC and do not say so. Pure."""
    if moment is None:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
