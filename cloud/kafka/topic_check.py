"""Checks that the settings of an existing topic keep our promises. No I/O.

It runs at each start, because others may have changed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.protocol import topics
from edgewake.protocol.names import is_reserved

STREAMS_TOLD: Final = 5
"""Streams named in one message; the rest is counted."""


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A setting that differs.

    `is_fatal`: readings could be lost or refused, so no part starts on it.
    """

    detail: str
    is_fatal: bool


def broken_promises(
    topic: str, found: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[BrokenPromise]:
    """`found`: the topic's settings at the broker; `wanted`: those that we would create it with."""

    def broken(name: str, expected: str, why: str, *, is_fatal: bool = True) -> BrokenPromise:
        return BrokenPromise(
            f"topic {topic}: {name} is {found[name]}, expected {expected}: {why}", is_fatal
        )

    policy = wanted.get("cleanup.policy", "delete")
    if found["cleanup.policy"] != policy:
        why = (
            "rows would be deleted by their age"
            if policy == "compact"
            else "records of a device would be taken for old versions of a row"
        )
        yield broken("cleanup.policy", policy, why)
    size = wanted["max.message.bytes"]
    if int(found["max.message.bytes"]) < int(size):
        yield broken(
            "max.message.bytes",
            f"at least {size}",
            "messages that the bridges may accept would be refused",
        )
    copies = wanted["min.insync.replicas"]
    if int(found["min.insync.replicas"]) < int(copies):
        yield broken(
            "min.insync.replicas",
            copies,
            "fewer copies than configured would have a record when it is acknowledged",
        )
    if found["unclean.leader.election.enable"] != wanted["unclean.leader.election.enable"]:
        yield broken(
            "unclean.leader.election.enable",
            "false",
            "a copy without acknowledged records could become the leader",
        )
    clock = wanted.get("message.timestamp.type")
    if clock is not None and found["message.timestamp.type"] != clock:
        yield broken(
            "message.timestamp.type",
            clock,
            "a bridge with a wrong clock would move the event times of its devices",
            is_fatal=False,
        )
    for name, unit in (
        ("retention.ms", "kept shorter than configured"),
        ("retention.bytes", "deleted by size before the configured time"),
    ):
        if policy == "delete" and _is_less(found[name], wanted[name]):
            yield broken(
                name, f"at least {wanted[name]}", f"records are {unit}", is_fatal=topic == topics.UP
            )


def broken_partitions(found: Mapping[str, int], wanted: int) -> Iterator[BrokenPromise]:
    """Streams that were made with another number of partitions than a new stream gets.

    `found`: partitions by topic.

    They keep theirs, because a device's records of a stream stay on one partition.
    """
    others = {
        name: count
        for name, count in found.items()
        if name.startswith(topics.STREAM_PREFIX) and count != wanted
    }
    told = sorted(
        name for name in others if not is_reserved(name.removeprefix(topics.STREAM_PREFIX))
    )
    if told:
        shown = ", ".join(f"{name} has {others[name]}" for name in told[:STREAMS_TOLD]) + (
            ", …" if len(told) > STREAMS_TOLD else ""
        )
        detail = (
            f"{len(told)} streams have another number of partitions than kafka.partitions = "
            f"{wanted}, and keep it: {shown}"
        )
        yield BrokenPromise(detail, is_fatal=False)


def foreign_installation(names: Iterable[str], own: str) -> BrokenPromise | None:
    """Does the Kafka with these topics serve another installation?"""
    found = sorted(
        name.removeprefix(topics.INSTALLATION_PREFIX)
        for name in names
        if name.startswith(topics.INSTALLATION_PREFIX)
    )
    others = [name for name in found if name != own]
    if not others:
        return None
    detail = (
        f"this Kafka serves the installation {others[0]!r}, and kafka.installation is {own!r}: "
        "both would share topics and groups. Give each installation a Kafka of its own; if they "
        "are one, give kafka.installation the same name"
    )
    return BrokenPromise(detail, is_fatal=True)


def _is_less(found: str, wanted: str) -> bool:
    """-1 means without a bound."""
    return int(found) != -1 and (int(wanted) == -1 or int(found) < int(wanted))
