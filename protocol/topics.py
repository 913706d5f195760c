"""Every topic, MQTT and Kafka, in one place.

MQTT (`<device>` is the client id):

    ew/v1/<device>/up/<stream>   frames and plain readings, device to cloud
    ew/v1/<device>/up/<stream>/ack   the same as up/<stream>, of a device without MQTT 5's response
                                 topics that wants an answer: on acks, as "<stream>|<seq>"
    ew/v1/<gateway>/up/<stream>/of/<thing>   frames and readings of a thing behind a gateway: from
                                 the bridge on it is a device of its own (docs/gateways.md)
    ew/v1/<device>/ack           end-to-end acknowledgements, cloud to device, one in a message
    ew/v1/<device>/acks          the same, several in a message: what agents ask for
    ew/v1/<device>/down/<kind>   commands, settings and replies, cloud to device
                                 (`edgewake.protocol.downlink.downlink`)
    ew/v1/<device>/req/feed      questions for what others sent; the answer is down/feed
                                 (`edgewake.protocol.downlink.feed`)
    ew/v1/<device>/status        birth, periodic status and last will of an agent (JSON,
                                 DeviceStatus)
    ew/bridges/<installation>/<bridge>   beats and last will of a bridge, for its like; no device
                                         may read or write here

Kafka (partitioned by device with the murmur2 partitioner; * = compacted):

    ew.up              records as the bridges accepted them, repeats and disorder included; 64
                       partitions, for ever
    ew.s.<stream>      the same records, each frame once and in order per device: what everybody
                       reads
    ew.q.<query>.<n>   results and watermarks of one registration of a query (n: its time in ms);
                       one partition
    ew.dead            dead letters: value = the bytes as they came, headers = why and from where
    ew.replays *       dead letters that were given back to their streams, key = letter
    ew.sequence *      what the sequencer knows per (device, epoch, stream), and how far it is; one
                       partition per shard
    ew.bridges *       sessions that bridges keep on their MQTT brokers, key = site|bridge
    ew.streams *       stream catalogue and the names of queries, key = name
    ew.devices *       key = device|status (what the agent says), device|seen (what the cloud
                       saw), device|gaps (what was missing), and of a thing
                       thing|seen|gateway, one for each way that it came
    ew.notes *         what people say of devices, key = device
    ew.down *          what devices are to do and to be, and how it ended; key = device|id and
                       device|settings
    ew.attributes *    attributes of ThingsBoard's devices, and commands that they have;
                       key = device
    ew.requests *      what devices ask for, and what they are told; key = device|id
    ew.queries *       registered queries, key = query
    ew.progress *      progress of the analysis, key = query
    ew.repairs *       windows computed again from the log: who asked, what changed; key = id
    ew.previews *      what queries would give, asked for and answered; key = id
    ew.erasures *      what is to be gone for good, and how far that came; key = id and id|part
    ew.boards *        what people put together to look at, key = board
    ew.sets *          named sets that filters use, key = set
    ew.maps *          maps that operators gave to all bridges, key = version|id
    ew.publications *  streams, a filter and fields under a name, key = publication
    ew.rules *          alert rules, their destinations, and what people said of alerts;
                       key = rule|name, destination|name, word|id
    ew.alerts *        alerts, how far they are judged, what is told of them; key = alert|rule|…,
                       place|topic, note|id
    ew.windows *       open sessions and windows by count, key = stream|query@registration|group
    ew.lanes *         last committed batch of each running Spark query, key = stream|lane
    ew.summaries.minute *, .hour *, .day *   summaries, key = stream|field|devices|start|maker
    ew.leases *        leases of sleeping clients, key = lease id; webhook deliveries, their dead
                       letters, and groups that share streams, key = delivery|id, letter|id|number,
                       group|id, on their owner's partition; a fixed number of partitions
    ew.reads           which of these clients read at the moment, key = lease id
    ew.cursors *       cursors kept for readers, key = holder|name
    ew.clients         who reads at each access server now, key = server; kept for minutes
    ew.endings *       clients that an operator ends, key = client or lease; until it is heard
    ew.problems *      problems of the system, when each began and ended, key = problem
    ew.history         what happened to devices, queries and parts; kept for 90 days
    ew.audit           who changed what at an operations server; kept for a year
    ew.installation.<name>  empty: the installation that this Kafka serves
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.names import is_device, is_stream

ROOT: Final = "ew/v1"
UP_FILTER: Final = f"{ROOT}/+/up/#"
STATUS_FILTER: Final = f"{ROOT}/+/status/#"
BRIDGE_FILTERS: Final = (UP_FILTER, STATUS_FILTER, f"{ROOT}/+/req/#", f"/{ROOT}/#")
"""What devices send, wider than what is right: a topic with a level or a slash too many is refused
and said, and does not vanish. Beside these MQTT has no filter for wrong topics that leaves out what
goes down to devices."""
JOINED_SUFFIX: Final = "/acks"
"""A device that asks for its answers on such a topic gets several in one message."""
ASKING_SUFFIX: Final = "/ack"
"""`ew/v1/<device>/up/<stream>/ack`: a device that cannot name a response topic asks for an answer,
which comes on its `…/acks`."""
FEED_END: Final = "/req/feed"
"""How the topic of a device's question for feeds ends."""
_OF: Final = "/of/"
EVERY_THING: Final = "+"
"""In place of the name of a thing; no thing has it."""
BRIDGE_PREFIX: Final = "ew/bridges/"

UP: Final = "ew.up"
DEAD: Final = "ew.dead"
REPLAYS: Final = "ew.replays"
SEQUENCE: Final = "ew.sequence"
BRIDGES: Final = "ew.bridges"
STREAMS: Final = "ew.streams"
DEVICES: Final = "ew.devices"
NOTES: Final = "ew.notes"
DOWN: Final = "ew.down"
ATTRIBUTES: Final = "ew.attributes"
REQUESTS: Final = "ew.requests"
QUERIES: Final = "ew.queries"
PROGRESS: Final = "ew.progress"
REPAIRS: Final = "ew.repairs"
PREVIEWS: Final = "ew.previews"
BOARDS: Final = "ew.boards"
SETS: Final = "ew.sets"
PUBLICATIONS: Final = "ew.publications"
MAPS: Final = "ew.maps"
ERASURES: Final = "ew.erasures"
ALERT_RULES: Final = "ew.rules"
ALERTS: Final = "ew.alerts"
LANES: Final = "ew.lanes"
WINDOWS: Final = "ew.windows"
SUMMARIES_PREFIX: Final = "ew.summaries."
MINUTES: Final = f"{SUMMARIES_PREFIX}minute"
HOURS: Final = f"{SUMMARIES_PREFIX}hour"
DAYS: Final = f"{SUMMARIES_PREFIX}day"
SUMMARIES: Final = (MINUTES, HOURS, DAYS)
SUMMARIES_KEPT_MS: Final = {
    MINUTES: 8 * 86_400_000,
    HOURS: 400 * 86_400_000,
    DAYS: 4000 * 86_400_000,
}
"""The retention of a summary after it was written, ms: a week of minutes and a day to spare, a year
of hours, eleven years of days."""
LEASES: Final = "ew.leases"
LEASE_READS: Final = "ew.reads"
CURSORS: Final = "ew.cursors"
CLIENTS: Final = "ew.clients"
CLIENTS_KEPT_MS: Final = 600_000
"""The retention of reports about clients, ms: only each server's newest one counts."""
ENDINGS: Final = "ew.endings"
PROBLEMS: Final = "ew.problems"
HISTORY: Final = "ew.history"
HISTORY_KEPT_MS: Final = 90 * 86_400_000
HISTORY_BYTES_MAX: Final = 256 << 20
"""The retention of the history, ms and bytes: a quarter of a year, or a million events."""
AUDIT: Final = "ew.audit"
AUDIT_KEPT_MS: Final = 366 * 86_400_000
AUDIT_BYTES_MAX: Final = 128 << 20
"""The retention of the audit, ms and bytes: a year, or half a million changes of 250 bytes."""
STREAM_PREFIX: Final = "ew.s."
LATE: Final = f"{STREAM_PREFIX}late_readings"
SHED: Final = f"{STREAM_PREFIX}shed_readings"
"""Streams that are read as any other; only the analysis writes them."""
PARTS: Final = f"{STREAM_PREFIX}part_status"
PARTS_KEPT_MS: Final = 3_600_000
"""What is said of the parts (`edgewake.protocol.ops.part_status`), kept for an hour."""
QUERY_PREFIX: Final = "ew.q."
INSTALLATION_PREFIX: Final = "ew.installation."
"""An empty topic with this prefix names the installation that uses a Kafka cluster."""

UP_PARTITIONS: Final = 64
"""Partitions of `ew.up`. The number is fixed: a device's state is kept with its partition, so
another number would change the order."""
SHARDS: Final = 16
"""Partitions of `ew.sequence`. A shard is the unit that moves between sequencers: four partitions
of `ew.up`."""
SEQUENCER_GROUP: Final = "sequencer"
"""Consumer group of the sequencers. Its offsets of `ew.up` say how far each partition is
sequenced."""
ANALYSIS_GROUP: Final = "analysis"
"""Consumer group of the analyses: the member that has the one partition of `ew.lanes` leads. It
commits nothing."""
ALERTS_GROUP: Final = "alerts"
"""Consumer group of the operations servers: the member that has the one partition of `ew.alerts`
judges. It commits nothing."""
FIXED_PARTITIONS: Final = {UP: UP_PARTITIONS, SEQUENCE: SHARDS}
"""Topics whose number of partitions cannot be configured."""

TABLES: Final = (
    BRIDGES,
    CURSORS,
    ENDINGS,
    PROBLEMS,
    STREAMS,
    DEVICES,
    NOTES,
    DOWN,
    ATTRIBUTES,
    REQUESTS,
    QUERIES,
    PROGRESS,
    REPAIRS,
    PREVIEWS,
    BOARDS,
    SETS,
    PUBLICATIONS,
    MAPS,
    ERASURES,
    ALERT_RULES,
    ALERTS,
    LANES,
    WINDOWS,
    *SUMMARIES,
    REPLAYS,
)
"""Compacted topics that are read whole."""
COMPACTED: Final = frozenset({*TABLES, SEQUENCE, LEASES})
SINGLE_PARTITION: Final = frozenset({*TABLES, DEAD, LATE, SHED, PARTS, CLIENTS, HISTORY, AUDIT})
"""Small topics that are read whole, and results, have one; leases a fixed number; streams as many
as the configuration says."""


def shard_of(up_partition: int) -> int:
    """The shard that a partition of `ew.up` belongs to."""
    return up_partition % SHARDS


def stream_partition(up_partition: int, count: int) -> int:
    """The partition of a stream's topic that takes the records of a partition of `ew.up`.

    `count`: partitions of the topic.

    A device is on one partition of `ew.up`, so all its records of a stream are on one partition
    there, in their order.
    """
    return up_partition % count


def up(device: str, stream: str) -> str:
    """MQTT topic of a device's readings of one stream."""
    return f"{ROOT}/{device}/up/{stream}"


def of_thing(stream: str, thing: str) -> str:
    """Name a thing's stream in topics and in its agent's log."""
    return f"{stream}{_OF}{thing}"


def of_all_things(stream: str) -> str:
    """Name all things' streams of it, of whatever thing; no stream has this name."""
    return of_thing(stream, EVERY_THING)


def is_of_all_things(name: str) -> bool:
    """Is it what `of_all_things` gives?"""
    return stream_and_thing(name)[1] == EVERY_THING


def stream_and_thing(name: str) -> tuple[str, str]:
    """The reverse of `of_thing`; no thing where it is a stream of the agent itself."""
    stream, _, thing = name.partition(_OF)
    return stream, thing


def ack(device: str) -> str:
    """MQTT topic of a device's end-to-end acknowledgements."""
    return f"{ROOT}/{device}/ack"


def acks(device: str) -> str:
    """MQTT topic of a device's end-to-end acknowledgements, several in a message."""
    return f"{ROOT}/{device}{JOINED_SUFFIX}"


def down(device: str, kind: str) -> str:
    """MQTT topic of messages from the cloud to a device; kind `+` is a filter of all kinds."""
    return f"{ROOT}/{device}/down/{kind}"


def status(device: str) -> str:
    """MQTT topic of a device's birth, status and last will."""
    return f"{ROOT}/{device}/status"


def bridge(installation: str, name: str) -> str:
    """MQTT topic of a bridge's heartbeats.

    With `+` for the name it is a filter of all bridges of the installation.
    """
    return f"{BRIDGE_PREFIX}{installation}/{name}"


def feed(device: str) -> str:
    """MQTT topic of a device's questions for feeds."""
    return f"{ROOT}/{device}/req/feed"


def parse_feed(topic: str) -> str | None:
    """The device that asks; None where it is another topic."""
    parts = topic.split("/")
    return (
        parts[2]
        if len(parts) == 5 and parts[3:] == ["req", "feed"] and is_device(parts[2])
        else None
    )


@dataclass(frozen=True, slots=True)
class UpTopic:
    """A parsed `ew/v1/<device>/up/<stream>`, or `ew/v1/<via>/up/<stream>/of/<device>`."""

    device: str
    """The device that made the readings."""
    stream: str
    via: str = ""
    """The gateway that sends them; empty: the device itself does."""

    @property
    def sender(self) -> str:
        """The device that is answered."""
        return self.via or self.device


def parse_up(topic: str) -> UpTopic:
    """Read device and stream from an MQTT topic.

    Raises Rejected(topic), which names the nearest right topic.
    """
    parts = topic.split("/")
    is_of_thing = len(parts) == 7 and parts[5] == "of"
    if not (len(parts) == 5 or is_of_thing) or parts[:2] != ["ew", "v1"] or parts[3] != "up":
        raise _wrong(topic, f"topic {topic[:200]!r}: expected {ROOT}/<device>/up/<stream>")
    names = [parts[2], parts[6]] if is_of_thing else [parts[2]]
    for name in names:
        if not is_device(name):
            raise _wrong(topic, f"device {name[:100]!r}: expected 1-64 of A-Z a-z 0-9 . _ -")
    stream = parts[4]
    if not is_stream(stream):
        raise _wrong(topic, f"stream {stream[:100]!r}: expected 1-64 of a-z 0-9 _, a letter first")
    if len(set(names)) < len(names):
        raise _wrong(
            topic, f"device {names[0]!r} is its own gateway: expected {up(names[0], stream)}"
        )
    return UpTopic(names[-1], stream, names[0] if is_of_thing else "")


def _wrong(topic: str, detail: str) -> Rejected:
    return Rejected(RejectReason.TOPIC, f"{detail}; the nearest right one is {nearest(topic)}")


def device_in(topic: str) -> str:
    """The device that a topic names, even with too many levels or slashes.

    Empty where it names none.
    """
    levels = topic.strip("/").split("/", 3)
    return (
        levels[2]
        if len(levels) > 2 and levels[0] == "ew" and levels[1] == "v1" and is_device(levels[2])
        else ""
    )


def thing_in(topic: str) -> UpTopic | None:
    """Parse the topic of a thing behind a gateway; None for any other topic."""
    if _OF not in topic:  # nearly none is, and all are looked at
        return None
    try:
        found = parse_up(topic)
    except Rejected:
        return None
    return found if found.via else None


def nearest(topic: str) -> str:
    """The right topic that is most like a wrong one.

    What cannot be guessed stays as `<device>` or `<stream>`.
    """
    levels = [level for level in topic[:TOPIC_CHARS_READ].split("/") if level]
    levels = levels[2:] if levels[:2] == ROOT.split("/") else levels
    device = levels[0] if levels and is_device(levels[0]) else "<device>"
    match levels[1:]:
        case ["status", *_]:
            return status(device)
        case ["req", *_]:
            return feed(device)
        case ["up", *names] | [*names]:
            words = re.sub("[^a-z0-9_]+", "_", "_".join(names).lower()).strip("_")
    stream = words if is_stream(words) else f"s_{words}"
    return up(device, stream if words and is_stream(stream) else "<stream>")


TOPIC_CHARS_READ: Final = 256
"""Characters of a wrong topic that are looked at for the nearest right one; MQTT allows 65,535."""


def parse_status(topic: str) -> str:
    """Read the device from `ew/v1/<device>/status`; raises Rejected(topic)."""
    parts = topic.split("/")
    if (
        len(parts) != 4
        or parts[:2] != ["ew", "v1"]
        or parts[3] != "status"
        or not is_device(parts[2])
    ):
        raise _wrong(topic, f"topic {topic[:200]!r}: expected {ROOT}/<device>/status")
    return parts[2]


def stream_topic(stream: str) -> str:
    """Kafka topic of a stream's sequenced records."""
    return STREAM_PREFIX + stream


def query_topic(query: str, registered_at: int) -> str:
    """Kafka topic of the results of one registration of a query.

    A query that is registered again has another topic, so results never mix.
    """
    return f"{QUERY_PREFIX}{query}.{registered_at}"


def parse_query_topic(topic: str) -> tuple[str, int] | None:
    """The query and the time of its registration; None for a topic of another kind."""
    name, _, registered_at = topic.removeprefix(QUERY_PREFIX).rpartition(".")
    if (
        not topic.startswith(QUERY_PREFIX)
        or not is_stream(name)
        or not (registered_at.isascii() and registered_at.isdigit())
    ):
        return None
    return name, int(registered_at)
