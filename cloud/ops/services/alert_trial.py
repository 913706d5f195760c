"""How often a rule would have fired in the last hours: its life, played over what Kafka has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.alerts.condition import Condition, devices
from edgewake.cloud.alerts.judge import readings_of
from edgewake.cloud.alerts.life import Seen, look, pass_time
from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol.ops.alert import Alert, Rule, State

RECORDS_MAX: Final = 20_000
"""Records read for one trial, shared by the partitions: some seconds of a processor."""
EPISODES_MAX: Final = 50
"""Episodes that are named; of more the number is said."""
STEPS: Final = 60
"""Points of the chart."""


class Episode(BaseModel):
    """A time during which an alert would have fired."""

    key: str
    begin: int
    end: int | None
    """None: it fires still."""
    value: str


class Step(BaseModel):
    """A part of the time: the least and most of `value`, and how many alerts fired at its end."""

    t: int
    least: float | None = None
    most: float | None = None
    firing: int = 0


class Trial(BaseModel):
    """The alerts that a rule would have raised."""

    is_known: bool
    """False: of this kind of rule the past is not kept; `note` says so."""
    note: str = ""
    begin: int
    end: int
    looks: int = 0
    """Readings, or rows, that were looked at."""
    is_cut: bool = False
    """There were more than were read: the newest were."""
    episodes: list[Episode] = []
    more: int = 0
    """Episodes that are not named."""
    keys: int = 0
    """Alerts that would have fired at least once."""
    steps: list[Step] = []


@dataclass(slots=True)
class _Played:
    alerts: dict[str, Alert] = field(default_factory=dict)
    open: dict[str, Episode] = field(default_factory=dict)
    done: list[Episode] = field(default_factory=list)

    def put(self, key: str, after: Alert | None) -> None:
        """An alert as it is now."""
        if after is None:
            self.alerts.pop(key, None)
        else:
            self.alerts[key] = after
        fires = after is not None and after.state is State.FIRING
        if fires and key not in self.open:
            assert after is not None
            self.open[key] = Episode(key=key, begin=after.since, end=None, value=after.value)
        elif not fires and key in self.open:
            episode = self.open.pop(key)
            over = episode.begin if after is None else after.since
            self.done.append(episode.model_copy(update={"end": over}))

    def pass_time(self, key: str, now: int, rule: Rule) -> None:
        """Nothing was heard of a key until now. It may fire and be stale meanwhile."""
        alert = self.alerts.get(key)
        if alert is None:
            return
        fires_at = alert.began + rule.for_s * 1000
        if alert.state is State.PENDING and fires_at < now:
            self.put(key, pass_time(alert, fires_at, rule))
        alert = self.alerts.get(key)
        if alert is not None:
            self.put(key, pass_time(alert, now, rule))


def read(
    session: KafkaSession, topic: str, *, begin: int, records_max: int = RECORDS_MAX
) -> tuple[list[Message], bool]:
    """The records since `begin`, in the order of Kafka's clock, and whether there were more.

    Raises Unavailable.
    """
    count = session.partitions(topic)
    found: list[Message] = []
    is_cut = False
    for partition in range(count):
        first = session.offset_at(topic, partition, begin)
        if first is None:
            continue
        _, end = session.range(topic, partition)
        start = max(first, end - records_max // count)
        is_cut = is_cut or start > first
        try:
            found += session.read(topic, partition, start, end)
        except DeadlinePassed:
            is_cut = True
            break
    return sorted(found, key=lambda message: message.timestamp()[1]), is_cut


def play(rule: Rule, messages: Sequence[Message], *, begin: int, end: int, is_cut: bool) -> Trial:
    """The trial of a rule over a stream, a query, or the silence of the devices of a stream."""
    if rule.silent_s is not None:
        # The judge looks at a silence again and again, so that it is never stale.
        rule = rule.model_copy(update={"stale_s": 0})
    played, looks = _Played(), 0
    width = max(1, (end - begin) // STEPS)
    steps = [Step(t=begin + i * width) for i in range(STEPS)]
    place = 0
    for seen, value in _looks(rule, messages, end):
        while place < STEPS and seen.at >= steps[place].t + width:
            _close_step(played, steps[place], rule, steps[place].t + width)
            place += 1
        looks += 1
        if value is not None and place < STEPS:
            _widen(steps[place], value)
        # What fired or ended since the last look is put down before this look hides it.
        played.pass_time(seen.key, seen.at, rule)
        before = played.alerts.get(seen.key)
        if before is not None or seen.holds is True:
            played.put(seen.key, look(before, seen, rule))
    for step in steps[place:]:
        _close_step(played, step, rule, step.t + width)
    episodes = sorted([*played.done, *played.open.values()], key=lambda one: -one.begin)
    return Trial(
        is_known=True,
        begin=begin,
        end=end,
        looks=looks,
        is_cut=is_cut,
        episodes=episodes[:EPISODES_MAX],
        more=max(0, len(episodes) - EPISODES_MAX),
        keys=len({one.key for one in episodes}),
        steps=steps,
    )


def unknown(rule: Rule, *, begin: int, end: int) -> Trial | None:
    """Where the past of what a rule looks at is not kept; None: it is."""
    if rule.problems is not None:
        note = "problems of the past are not kept: what there is now fires at once"
    elif rule.silent_s is not None and rule.stream is None:
        note = "when a device was silent is known by stream only: give a stream to try the rule"
    else:
        return None
    return Trial(is_known=False, note=note, begin=begin, end=end)


def _looks(
    rule: Rule, messages: Sequence[Message], end: int
) -> Iterator[tuple[Seen, float | None]]:
    if rule.silent_s is not None:
        yield from _silences(rule, messages, end)
        return
    condition = Condition.of(rule)
    for message in messages:
        at = int(message.timestamp()[1])
        for reading in readings_of(message):
            yield condition.seen(reading, at), _number(reading.get(rule.value or ""))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _silences(
    rule: Rule, messages: Sequence[Message], end: int
) -> Iterator[tuple[Seen, float | None]]:
    """A device is silent `silent_s` after a record, until the next."""
    assert rule.silent_s is not None
    is_meant, wait = devices(rule), rule.silent_s * 1000
    last: dict[str, int] = {}
    found: list[Seen] = []
    for message in messages:
        device = (message.key() or b"").decode("utf-8", "replace")
        if is_meant({"device": device}) is not True:
            continue
        at = int(message.timestamp()[1])
        if device in last and at - last[device] > wait:
            found.append(Seen(device, last[device] + wait, holds=True))
            found.append(Seen(device, at, holds=False))
        last[device] = at
    found += [Seen(device, at + wait, holds=True) for device, at in last.items() if end - at > wait]
    for seen in sorted(found, key=lambda one: one.at):
        yield seen, None


def _close_step(played: _Played, step: Step, rule: Rule, at: int) -> None:
    for key in list(played.alerts):
        played.pass_time(key, at, rule)
    step.firing = len(played.open)


def _widen(step: Step, value: float) -> None:
    step.least = value if step.least is None else min(step.least, value)
    step.most = value if step.most is None else max(step.most, value)
