"""Do the settings of an existing topic keep what we promise? Compared at each start, because others may have changed it. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgewake.protocol import topics


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A setting that differs. `is_fatal`: readings could be lost or refused, so no part starts on it."""

    detail: str
    is_fatal: bool


def broken_promises(topic: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[BrokenPromise]:
    """`found`: the topic's settings as the broker has them; `wanted`: those that we would make it with."""

    def broken(name: str, expected: str, why: str, *, is_fatal: bool = True) -> BrokenPromise:
        return BrokenPromise(f"topic {topic}: {name} is {found[name]}, expected {expected}: {why}", is_fatal)

    policy = wanted.get("cleanup.policy", "delete")
    if found["cleanup.policy"] != policy:
        why = (
            "rows would be deleted by their age" if policy == "compact" else "records of a device would be taken for old versions of a row"
        )
        yield broken("cleanup.policy", policy, why)
    size = wanted["max.message.bytes"]
    if int(found["max.message.bytes"]) < int(size):
        yield broken("max.message.bytes", f"at least {size}", "messages that the bridges may accept would be refused")
    copies = wanted["min.insync.replicas"]
    if int(found["min.insync.replicas"]) < int(copies):
        yield broken("min.insync.replicas", copies, "fewer copies than configured would have a record when it is acknowledged")
    if found["unclean.leader.election.enable"] != wanted["unclean.leader.election.enable"]:
        yield broken("unclean.leader.election.enable", "false", "a copy that lacks acknowledged records could become the leader")
    clock = wanted.get("message.timestamp.type")
    if clock is not None and found["message.timestamp.type"] != clock:
        yield broken(
            "message.timestamp.type", clock, "a bridge with a wrong clock would move the event times of its devices", is_fatal=False
        )
    for name, unit in (("retention.ms", "kept shorter than configured"), ("retention.bytes", "deleted by size before the configured time")):
        if policy == "delete" and _is_less(found[name], wanted[name]):
            yield broken(name, f"at least {wanted[name]}", f"records are {unit}", is_fatal=topic == topics.UP)


def _is_less(found: str, wanted: str) -> bool:
    """-1 is no bound at all."""
    return int(found) != -1 and (int(wanted) == -1 or int(found) < int(wanted))
