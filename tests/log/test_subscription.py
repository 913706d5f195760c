"""Plans of subscriptions: bounded, and hidden gaps."""

from __future__ import annotations

import pytest

from edgewake.cloud.log.decode import GAP, Event
from edgewake.cloud.log.subscription import Plan, Source, SubscriptionTooLarge, plan
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
