"""The agent's configuration: one TOML file, every key with its unit, its default and why.

device = "car-07"
data_dir = "/var/lib/edgewake"

[mqtt]
host = "broker.example"

[[source]]
type = "host_metrics"
stream = "host_metrics"
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from edgewake.edge.actions.config import AnyAction
from edgewake.edge.downlink.config import DownlinkConfig
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.processors.config import AbsenceConfig, ChainConfig
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sources.config import AnySource
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.downlink.downlink import ANSWERS, REPLIES, REQUESTS
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.names import is_device, is_reserved
from edgewake.protocol.plain import Check, ConfigTable, Length
from edgewake.protocol.sketches.sketch import STREAM as SKETCHES

SKETCHES_MAX: Final = 4
"""Streams that are sketched: each has a process of some 17 MB. More are refused."""
ACTIONS_MAX: Final = 100
"""Actions of an agent, and as many absence rules: each is a task and a cursor. More are refused."""
SKETCHED_THINGS_MAX: Final = 2_000
"""Things behind this device of which one has sketches: each has its own in memory, and a place in
the state that is written with them. More are refused."""
CHAINS_MAX: Final = 100
"""Chains of an agent: each is a task, a cursor and a state that are written often. More are
refused."""
FALLBACKS_MAX: Final = 8
"""Brokers that stand in for the first one. Each is tried for up to ten seconds before the next has
its turn."""
QUOTA_WINDOWS_MIN: Final = 2
"""The quota holds at least this many in-flight windows: what is being sent is never what has to
go."""


def _device(name: str) -> str:
    if not is_device(name):
        raise ValueError("expected 1-64 of A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


class AgentConfig(ConfigTable):
    """The configuration of one agent."""

    device: Annotated[str, Check(_device)]
    """Its identity: MQTT client id, first level of its topics, key in Kafka."""
    data_dir: Path
    """Directory of the event log, mode 0700; for one agent only."""
    mqtt: BrokerConfig = BrokerConfig()
    fallback: Annotated[tuple[BrokerConfig, ...], Length(0, FALLBACKS_MAX)] = ()
    log: LogConfig = LogConfig()
    uplink: UplinkConfig = UplinkConfig()
    downlink: DownlinkConfig = DownlinkConfig()
    source: tuple[AnySource, ...] = ()
    chain: Annotated[tuple[ChainConfig, ...], Length(0, CHAINS_MAX)] = ()
    absence: Annotated[tuple[AbsenceConfig, ...], Length(0, ACTIONS_MAX)] = ()
    sketch: Annotated[tuple[SketchConfig, ...], Length(0, SKETCHES_MAX)] = ()
    action: Annotated[tuple[AnyAction, ...], Length(0, ACTIONS_MAX)] = ()

    def __post_init__(self) -> None:
        self._check_streams()
        self._check_owned()
        self._check_things()
        self._check_sent()
        self._check_chains()

    def _check_streams(self) -> None:
        if self.log.quota_bytes < QUOTA_WINDOWS_MIN * self.uplink.inflight_bytes_max:
            raise ValueError(
                f"log.quota_bytes: expected at least {QUOTA_WINDOWS_MIN} times "
                "uplink.inflight_bytes_max"
            )
        for stream in self.lanes:
            if is_reserved(stream) or stream == ANSWERS:
                raise ValueError(
                    f"source or chain: the stream {stream!r} is written by the system: expected "
                    "another name"
                )
            if stream == REQUESTS and not (
                self.downlink.requests and REQUESTS not in self.local_streams
            ):
                raise ValueError(
                    f"source or chain: {stream!r} asks the cloud: expected `downlink.requests = "
                    "true`, and that it is sent"
                )
        lanes = {(source.stream, source.lane) for source in self.source}
        if len(lanes) > len({stream for stream, _ in lanes}):
            raise ValueError("source: one stream has two lanes")
        sent = {(source.stream, source.send) for source in self.source}
        if len(sent) > len({stream for stream, _ in sent}):
            raise ValueError("source: one stream is both sent and not sent")
        if len({(source.stream, source.queue_bytes_max) for source in self.source}) > len(
            {stream for stream, _ in lanes}
        ):
            raise ValueError("source: one stream has two values of queue_bytes_max")

    def _check_owned(self) -> None:
        owned = [what for what in (source.owns() for source in self.source) if what is not None]
        for what in owned:
            if owned.count(what) > 1:
                raise ValueError(f"source: two of them read {what}")

    def _check_things(self) -> None:
        kept = {(source.stream, source.things, source.things_max) for source in self.source}
        if len(kept) > len({source.stream for source in self.source}):
            raise ValueError("source: one stream has two values of things or things_max")
        renamed: dict[tuple[str, str], str] = {}
        for source in self.source:
            for path, name in source.rename.items():
                if renamed.setdefault((source.stream, path), name) != name:
                    raise ValueError(f"source: one stream has two names for {path!r} (`rename`)")
        for source in self.source:
            if source.has_devices and source.mode is not Mode.ACK:
                raise ValueError(
                    f"source {source.stream!r}: things that are devices are kept until the cloud "
                    'has them: expected `things = "field"`, or no `mode = "one_way"`'
                )
        sketched = {sketch.stream for sketch in self.sketch} & self.streams_of_things
        for source in self.source:
            if source.has_devices and sketched and source.things_max > SKETCHED_THINGS_MAX:
                raise ValueError(
                    f"source {source.stream!r}: things_max = {source.things_max}, and "
                    f"{', '.join(sorted(sketched))} is sketched: expected things_max of at most "
                    f"{SKETCHED_THINGS_MAX}, for each thing has sketches of its own in memory"
                )

    def _check_sent(self) -> None:
        if any(source.mode is Mode.ONE_WAY and not source.send for source in self.source):
            raise ValueError("source: a stream that is one_way and not sent goes nowhere")
        if self.local_streams and not self.log.mode.flags.on_receipt:
            raise ValueError(
                f"send: log.mode {self.log.mode} logs what is sent when it is sent, and nothing "
                "else"
            )

    @property
    def made_streams(self) -> frozenset[str]:
        """Streams that chains and absence rules make, and no source."""
        return frozenset(
            {chain.into for chain in self.chain} | {rule.into for rule in self.absence}
        )

    @property
    def local_streams(self) -> frozenset[str]:
        """Streams that are not sent."""
        made = {chain.into for chain in self.chain if not chain.send} | {
            rule.into for rule in self.absence if not rule.send
        }
        return frozenset(made | {source.stream for source in self.source if not source.send})

    @property
    def streams_of_things(self) -> frozenset[str]:
        """Streams of which each thing behind this device has one of its own."""
        found = {source.stream for source in self.source if source.has_devices}
        for chain in self.chain:  # none reads what a later one makes
            if REQUESTS in found:
                found.add(REPLIES)
            if chain.stream in found:
                found.add(chain.into)
        if REQUESTS in found:
            found.add(REPLIES)
        return frozenset(found | {rule.into for rule in self.absence if rule.stream in found})

    def _check_chains(self) -> None:
        """A chain's input is there before it, so chains go round in no circle."""
        sources = {source.stream for source in self.source}
        logged = {source.stream for source in self.source if source.mode is Mode.ACK} | (
            {REPLIES} if self.downlink.requests else set()
        )
        for chain in self.chain:
            if chain.into in sources | logged:
                raise ValueError(
                    f"chain: the stream {chain.into!r} is made by another source or chain too; "
                    "expected another name"
                )
            if chain.stream not in logged:
                hint = "no source or earlier chain makes it" + self._unnamed
                if chain.stream in sources:
                    hint = "its source is one_way, which logs nothing"
                raise ValueError(f"chain: it cannot read {chain.stream!r}: {hint}")
            logged.add(chain.into)
        self._check_watched(sources, logged)

    @property
    def _unnamed(self) -> str:
        """What to do where a stream may be one that maps name, which nobody knows beforehand."""
        if not any(source.has_streams for source in self.source):
            return ""
        return (
            '; streams that a source with `streams = "all"` fills are known only when they come: '
            "give this one a source of its own beside it (`stream`), with the same presets"
        )

    def _check_watched(self, sources: set[str], logged: set[str]) -> None:
        alerts: dict[str, tuple[Lane, bool]] = {}
        for rule in self.absence:
            if rule.stream not in logged:
                raise ValueError(
                    f"absence {rule.name!r}: {rule.stream!r} is not a stream of a logged source "
                    f"or a chain{self._unnamed}"
                )
            if rule.into in sources | logged or alerts.setdefault(
                rule.into, (rule.lane, rule.send)
            ) != (rule.lane, rule.send):
                raise ValueError(
                    f"absence {rule.name!r}: the stream {rule.into!r} is already made by another "
                    "source or chain, or in another way; expected another name"
                )
        for action in self.action:
            if action.stream not in logged | alerts.keys():
                raise ValueError(
                    f"action {action.name!r}: {action.stream!r} is not a stream of a logged "
                    f"source, a chain or an absence rule{self._unnamed}"
                )
        for sketch in self.sketch:
            if (
                sketch.stream not in logged
                or (sketch.stream in self.local_streams) == sketch.beside
            ):
                wanted = (
                    "is sent, as `beside` says"
                    if sketch.beside
                    else "has `send = false`: what is sent too would count twice"
                )
                raise ValueError(
                    f"sketch: {sketch.stream!r} is not a stream of a logged source or a chain "
                    f"that {wanted}{self._unnamed}"
                )
        if SKETCHES in sources | logged | alerts.keys():
            raise ValueError(f"source, chain or absence: {SKETCHES!r} is the stream of sketches")
        if len({sketch.lane for sketch in self.sketch}) > 1 or len(
            {sketch.stream for sketch in self.sketch}
        ) < len(self.sketch):
            raise ValueError("sketch: two have one stream, or not the same lane")
        for table, names in (
            ("absence", [rule.name for rule in self.absence]),
            ("action", [action.name for action in self.action]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"{table}: two of the same name; expected each name once")

    @property
    def behind_s(self) -> dict[str, float]:
        """How old a reading of a chain may be at birth, in seconds by stream.

        It is the time from the reading's own time to the reading that completed it.
        """
        found: dict[str, float] = {}
        for chain in self.chain:  # none reads what a later one makes
            found[chain.into] = found.get(chain.stream, 0.0) + sum(
                one.behind_s for one in chain.processor
            )
        return found

    @property
    def lanes(self) -> dict[str, Lane]:
        """The lane of each stream."""
        made = {chain.into: chain.lane for chain in self.chain} | {
            rule.into: rule.lane for rule in self.absence
        }
        if self.sketch:
            made[SKETCHES] = self.sketch[0].lane
        return {source.stream: source.lane for source in self.source} | made
