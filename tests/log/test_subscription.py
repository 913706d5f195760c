"""Plans of subscriptions: bounded, and hidden gaps."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.cloud.access.paced import thing_of
from edgewake.cloud.log.decode import DATA, GAP, Event
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.subscription import Plan, Source, SubscriptionTooLarge, plan
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.leases.lease import Subscription


def a_plan(
    *names: str, partitions: int = 2, topic_id: str = "id", where: str | None = None
) -> Plan:
    sources = [Source(name, f"ew.s.{name}", False, topic_id, partitions) for name in names]
    return plan(Subscription(streams=names, where=where), sources)


def test_a_subscription_whose_cursor_would_not_fit_into_a_header_is_refused_at_once() -> None:
    assert len(a_plan(*map(str, range(16)), partitions=64).sources) == 16
    with pytest.raises(
        SubscriptionTooLarge, match="16 streams with 1040 partitions: expected at most 1024"
    ):
        a_plan(*map(str, range(16)), partitions=65)


def test_a_gap_of_another_device_is_hidden_where_the_condition_rules_it_out() -> None:
    """tests/log/test_filter has what a condition can rule out."""
    gap = Event(
        GAP,
        {"scope": "device", "reason": "quota", "lost": 5, "stream": "s", "device": "car-8"},
        b"{}",
    )
    shown = [
        a_plan("s", where=where).show(gap)
        for where in (None, "device = 'car-7'", "device = 'car-8'", "speed > 5")
    ]
    assert shown == [gap, None, gap, gap]


def of_zones(*fields: str, **more: Any) -> Plan:
    """Results of a query by zone, of which these fields are seen."""
    source = Source("q", "ew.q.q", True, "id", 1)
    scope = Scope((Part(None, Names.of(fields)),))
    wanted = Wanted(streams=("q",), **more)
    return plan(wanted, [source], [scope], groups_of=lambda _: ("zone",))


def things(found: Plan, per: tuple[str, ...] = ()) -> int:
    """How many things two results of two zones are about."""
    results = [{"query": "q", "zone": zone, "speed": 1.0, "line": "4"} for zone in "ab"]
    shown = [found.show(Event(DATA, one, b"{}")) for one in results]
    told = [thing_of(found, 0, event, per) for event in shown if event is not None]
    return len(set(told) - {None}) + told.count(None)


def test_groups_whose_columns_are_hidden_take_no_others_place() -> None:
    """They were one group, of which the latest result alone came."""
    assert things(of_zones("speed", "zone")) == things(of_zones("speed")) == 2
    assert things(of_zones("speed", "line"), per=("line",)) == 1, "asked for by name"


def test_a_share_of_groups_whose_columns_are_hidden_is_refused() -> None:
    """It was all of them or none."""
    with pytest.raises(RequestError, match="expected fields that you may read as per"):
        of_zones("speed", sample=0.5)
    assert of_zones("speed", "line", sample=0.5, per=("line",)).per == (("line",),)
    assert of_zones("zone", sample=0.5).per == (("zone",),)
