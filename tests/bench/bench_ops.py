"""How long the operations API's event loop is blocked by one step of its own work, with 10,000 and
100,000 devices.

No Kafka and no HTTP, because what blocks is what runs between two awaits: a batch of table records,
the end of their load, a look for devices that fell silent (all of them at once), a page of a list
in order, one of a filter that one device in a thousand passes, a scrape. Processor time, so that
others on the machine do not count; the longest of all steps of a kind. After each run the counts
are checked: every device listed once, all of them silent at the end. `python -m
tests.bench.bench_ops [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from edgewake.cloud.ops.run import apply, settle
from edgewake.cloud.ops.services.reader import BATCH_MAX
from edgewake.cloud.ops.tables.devices import DevicePresence
from edgewake.cloud.ops.tables.metrics import TablesCollector
from edgewake.cloud.ops.tables.tables import Change, OpsTables
from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus
from tests.bench.figures import Found, rss_mib, run

FLEETS = (10_000, 100_000)
BLOCKED_MS = 50.0
PAGE = 500
NOW = 1_790_000_000_000


def changes(fleet: int, now: int) -> list[Change]:
    """Both rows of every device, in any order."""
    rows = []
    for i in range(fleet):
        device = f"dev-{i:06d}"
        state = DeviceState.OFFLINE if i % 1000 == 0 else DeviceState.ONLINE
        status = DeviceStatus(
            device=device, state=state, received_at=now, epoch=1, backlog_readings=3
        )
        seen = DeviceSeen(device=device, last_seen=now - 1, streams={"a": 5, "b": 7}, records=12)
        rows.append(Change(topics.DEVICES, f"{device}|status", status.to_json()))
        rows.append(Change(topics.DEVICES, f"{device}|seen", seen.to_json()))
    random.Random(1).shuffle(rows)
    return rows


class Steps:
    """The longest step of each kind."""

    def __init__(self) -> None:
        self.longest_ms: dict[str, float] = defaultdict(float)

    def step(self, kind: str, work: Callable[[], Any]) -> Any:
        """Do it and note how long it took."""
        before = time.process_time()
        found = work()
        self.longest_ms[kind] = max(self.longest_ms[kind], (time.process_time() - before) * 1000)
        return found


def copied(change: Change) -> Change:
    """As from Kafka: the bench keeps its own rows, and theirs would cost the tables nothing."""
    return Change(
        change.topic, change.key, None if change.value is None else bytes(bytearray(change.value))
    )


def one(fleet: int) -> tuple[Steps, float]:
    """Longest steps, and KiB a device."""
    gc.collect()
    before = rss_mib(os.getpid())
    rows = changes(fleet, NOW)
    gc.freeze()  # the rows are the bench's, and would make each of its collections longer
    data_mib = rss_mib(os.getpid()) - before
    tables, steps = OpsTables(is_loaded=False), Steps()
    for kind, loaded in (("batch while the tables load", False), ("batch of reports", True)):
        tables.is_loaded = loaded
        if loaded:
            steps.step("end of the load", settle)
        for i in range(0, len(rows), BATCH_MAX):
            steps.step(
                kind, partial(apply, tables, list(map(copied, rows[i : i + BATCH_MAX])), now=NOW)
            )
    kib = max(0.0, rss_mib(os.getpid()) - before - data_mib) * 1024 / fleet
    names: list[str] = []
    while len(names) < fleet:
        after = names[-1] if names else None
        names += [
            d.device
            for d in steps.step("page of 500 devices", partial(tables.devices.page, after, PAGE))
        ]
    assert names == sorted(set(names)), "each device once, in order"
    found = steps.step(
        "page of a rare state", lambda: tables.devices.page(None, PAGE, DevicePresence.OFFLINE)
    )
    assert len(found) == min(PAGE, fleet // 1000)
    registry = CollectorRegistry()
    registry.register(TablesCollector(tables))
    steps.step("scrape", lambda: generate_latest(registry))
    is_more = True
    while is_more:
        _, is_more = steps.step(
            "look at a fleet that fell silent", lambda: tables.look(now=NOW + 3_600_000)
        )
    assert tables.devices.total(DevicePresence.ONLINE) == 0, "nobody is left online"
    return steps, kib


def as_models_kib(fleet: int) -> float:
    """KiB a device of the same rows kept as models: what was turned down."""
    rows = changes(fleet, NOW)
    gc.collect()
    before = rss_mib(os.getpid())
    kept = [
        (DeviceStatus if change.key.endswith("|status") else DeviceSeen).from_json(change.value)
        for change in rows
        if change.value is not None
    ]
    assert len(kept) == 2 * fleet
    return (rss_mib(os.getpid()) - before) * 1024 / fleet


def measure(_folder: Path, runs: int) -> Found:
    """All fleets, as often as asked."""
    found: Found = defaultdict(list)
    for i in range(runs):
        for fleet in FLEETS:
            steps, kib = one(fleet)
            for kind, longest_ms in steps.longest_ms.items():
                found[f"operations API, {fleet:,} devices: {kind}", "ms", BLOCKED_MS].append(
                    longest_ms
                )
            # What a later run takes was freed by the one before, and is not seen to grow.
            if i == 0:
                found[f"operations API, {fleet:,} devices: memory a device", "KiB", None].append(
                    kib
                )
        if i == 0:
            found["memory a device, reports kept as models", "KiB", None].append(
                as_models_kib(FLEETS[-1])
            )
    return found


if __name__ == "__main__":
    run(measure, __doc__)
