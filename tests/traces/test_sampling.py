"""Which messages a bridge traces, and what its record is then."""

from __future__ import annotations

import random

import pytest

from edgewake.cloud.traces import sampling
from edgewake.cloud.traces.config import SampledConfig
from edgewake.cloud.traces.sampling import Sampling


def decided(config: SampledConfig) -> Sampling:
    return Sampling(config, random.Random(1))


def test_a_device_has_so_many_in_a_minute_and_another_has_its_own():
    one = decided(SampledConfig(asked_per_min=3))
    assert [one.may("a", 100.0) for _ in range(5)] == [True, True, True, False, False]
    assert one.may("b", 100.0)
    assert not one.may("a", 119.9)
    assert one.may("a", 140.0), "one more each third of a minute"
    assert not decided(SampledConfig(asked_per_min=0)).may("a", 0.0)
    seldom = decided(SampledConfig(asked_per_min=0.5))
    assert [seldom.may("a", at_s) for at_s in (0.0, 60.0, 120.0)] == [True, False, True]


def test_devices_that_ask_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "DEVICES_MAX", 10)
    one = decided(SampledConfig(asked_per_min=1))
    assert all(one.may(f"d{i}", 0.0) for i in range(1000))
    assert len(one._left) == 10


def test_a_share_of_what_says_nothing_begins_a_trace():
    one = decided(SampledConfig(ratio=0.1))
    assert 800 < sum(one.begins() for _ in range(10_000)) < 1200
    off = decided(SampledConfig())
    assert not any(off.begins() for _ in range(10_000))
