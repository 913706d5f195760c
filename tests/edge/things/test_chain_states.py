"""Chains, absence rules, actions and sketches at a gateway: each thing as if it were alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.edge.actions.runner import ActionRunner
from edgewake.edge.config import SKETCHED_THINGS_MAX, AgentConfig
from edgewake.edge.log.consumer import STATE_BYTES_MAX, Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed
from edgewake.edge.processors.build import build
from edgewake.edge.processors.config import ChainConfig
from edgewake.edge.processors.operators.absences import Absences
from edgewake.edge.processors.processing import Processing
from edgewake.edge.sketches.sketching import Sketcher
from edgewake.edge.things.chain_states import ThingStates
from edgewake.edge.things.sink import ThingSink
from edgewake.edge.things.streams import streams_of
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.sketches.sketch import STREAM as SKETCHES
from tests.edge.actions.helpers import until
from tests.edge.helpers import Sent, opened, reading
from tests.services import PATIENCE_S

MEAN = ChainConfig.checked(
    {
        "stream": "power",
        "into": "power_mean",
        "processor": [{"type": "window", "fields": ["n"], "size_count": 3, "aggregates": ["mean"]}],
    }
)
THINGS = frozenset({"power", "power_mean"})


def of(thing: str, *numbers: int) -> list[Reading]:
    return [reading(n, thing=thing) for n in numbers]


def sink(events: EventLog) -> ThingSink:
    return ThingSink(events, "power", device="gw", things_max=100)


async def bring(events: EventLog, readings: list[Reading]) -> None:
    into = sink(events)
    into.put(readings, None, {})
    await into.durable()


async def read(consumer: Consumer, count: int) -> dict[str, list[Reading]]:
    """So many readings, by stream of the log."""
    found: dict[str, list[Reading]] = {}
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(len, found.values())) < count:
            chunk = await consumer.read()
            for item in chunk.items:
                assert not isinstance(item, Missed)
                found.setdefault(item.stream, []).extend(item.readings)
            await consumer.commit(chunk.cursor)
    return found


def means(found: dict[str, list[Reading]]) -> dict[str, list[Any]]:
    return {stream: [one[1]["n_mean"] for one in some] for stream, some in found.items()}


@asynccontextmanager
async def at_work(*work: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_consumer_reads_streams_of_things_that_come_later(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        await bring(events, of("old", 1))
        names = streams_of("power", of_things=True)
        consumer = await events.consumer("all", names)
        ends = await events.consumer("ends", names, at_end=True)
        await bring(events, [*of("old", 2), *of("new", 1), reading(7)])
        found = await read(consumer, 4)
        assert {stream: len(some) for stream, some in found.items()} == {
            "power/of/old": 2,
            "power/of/new": 1,
            "power": 1,
        }
        late = await read(ends, 3)
        assert len(late["power/of/old"]) == 1, "from the end of what was there"
        assert len(late["power/of/new"]) == 1, "all of what was not"


@pytest.mark.parametrize("waits", [True, False])
async def test_what_a_consumer_has_not_read_of_a_new_thing_stays(
    tmp_path: Path, waits: bool
) -> None:
    """Sent, acknowledged, and the agent started again: it is still there for who has not read it,
    and gone (the control) where nobody waits for things that come later.
    """
    sent = Sent()
    with opened(tmp_path, sent=sent) as events:
        await events.consumer("all", streams_of("power", of_things=waits))
        await bring(events, of("new", 1, 2))
        events.start_sending()
        await asyncio.to_thread(sent.until, 1)
        sent.acknowledge(events)
        await events.ask_status()
    with opened(tmp_path) as events:
        consumer = await events.consumer("all", streams_of("power", of_things=True))
        assert await events.ask_status()
        chunk = consumer.poll()
    there = [item for item in chunk.items if not isinstance(item, Missed)]
    assert sum(len(item.readings) for item in there) == (2 if waits else 0)


async def test_each_thing_has_windows_of_its_own_also_over_a_restart(tmp_path: Path) -> None:
    def processing(events: EventLog) -> Processing:
        return Processing([MEAN], events, THINGS)

    with opened(tmp_path) as events:
        work = processing(events)
        await work.open()
        async with at_work(*(chain.run() for chain in work.chains.values())):
            await bring(events, [*of("a", 1, 2), *of("b", 10, 20), reading(100)])
            consumer = await events.consumer("seen", streams_of("power", of_things=True))
            await bring(events, of("b", 30))
            made = await events.consumer("made", streams_of("power_mean", of_things=True))
            assert means(await read(made, 1)) == {"power_mean/of/b": [20.0]}
        assert consumer.name == "seen"
    with opened(tmp_path) as events:
        work = processing(events)
        await work.open()
        async with at_work(*(chain.run() for chain in work.chains.values())):
            made = await events.consumer("made", streams_of("power_mean", of_things=True))
            await bring(events, [*of("a", 3), reading(200), reading(300), *of("c", 1, 1, 1)])
            assert means(await read(made, 3)) == {
                "power_mean/of/a": [2.0],
                "power_mean": [200.0],
                "power_mean/of/c": [1.0],
            }
            counts = work.counts()["power_mean"]
    assert (counts["in"], counts["out"], counts["things"]) == (12, 4, 3)
    assert counts["things_forgotten"] == 0


async def test_a_log_that_is_renewed_is_read_on(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        consumer = await events.consumer("all", streams_of("power", of_things=True))
        await bring(events, of("a", 1))
        assert await read(consumer, 1)
        consumer.renew()
        with pytest.raises(LogRenewedError):
            await consumer.read()
        await bring(events, [*of("a", 2), *of("b", 1)])
        assert set(await read(consumer, 2)) == {"power/of/a", "power/of/b"}


def test_a_state_too_large_forgets_the_thing_unused_longest_and_keeps_the_counts() -> None:
    chain = build(MEAN)
    states = ThingStates(chain, None, 2_000)
    for n in range(40):
        states.apply(f"meter-{n}", [reading(n)])
    states.apply("meter-0", [reading(1)])
    body = states.encode()
    assert len(body) <= 2_000
    counts = states.counts()
    assert counts["in"] == 41
    assert counts["things"] + counts["things_forgotten"] == 40
    assert counts["things_forgotten"] > 0
    again = ThingStates(chain, body, 2_000)
    assert again.is_resumed
    assert again.counts() == counts
    assert again.apply("meter-0", [reading(4)])[0][1]["n_mean"] == pytest.approx(5 / 3)
    assert again.apply("meter-1", [reading(1)]) == [], "it begins again"


@pytest.mark.parametrize("kept", [b"nonsense", b"[1]", b'{"things": 3}', b'{"things": {"a": 1}}'])
def test_a_state_that_cannot_be_read_begins_again(kept: bytes) -> None:
    states = ThingStates(build(MEAN), kept, STATE_BYTES_MAX)
    assert not states.is_resumed
    assert states.apply("a", [reading(1)]) == []


def absences(kept: bytes | None = None, *things: str) -> Absences:
    config = AgentConfig.checked(agent(absence=[ABSENCE])).absence[0]
    return Absences.resumed(config, kept, things, now_s=0.0, now_ms=0)


def test_the_silence_of_one_thing_is_told_while_another_speaks() -> None:
    states = absences()
    assert states.left_s(0.0) is None, "nothing is expected of things that nobody knows"
    assert states.heard(["a", "b"], now_s=1.0, now_ms=1_000) == {}
    assert states.left_s(1.0) == 5.0
    states.heard(["b"], now_s=5.0, now_ms=5_000)
    told = states.silent(now_s=6.5, now_ms=6_500)
    assert {thing: (alert["active"], alert["since_ms"]) for thing, (_, alert) in told.items()} == {
        "a": (True, 1_000)
    }
    assert states.silent(now_s=7.0, now_ms=7_000) == {}, "once"
    again = absences(states.encode(), "a", "b")
    assert again.active == 1, "over a restart, too"
    assert [alert["active"] for _, alert in again.heard(["a"], now_s=1.0, now_ms=1).values()] == [
        False
    ]


SOURCE = {
    "type": "http_intake",
    "stream": "power",
    "things": "devices",
    "port": 8080,
}
CHAIN = {"stream": "power", "into": "hot", "processor": [{"type": "filter", "where": "n > 5"}]}
ABSENCE = {"name": "quiet", "stream": "power", "into": "silences", "after_s": 5.0}
ACTION = {"name": "siren", "stream": "hot", "type": "command", "command": ["/bin/true"]}
SKETCH = {"stream": "power", "fields": ["n"], "kinds": ["numbers"], "window_s": 1, "beside": True}


def agent(**tables: Any) -> dict[str, Any]:
    return {"device": "gw", "data_dir": "/tmp/gw", "source": [SOURCE], **tables}


def test_all_of_it_may_read_streams_of_things() -> None:
    config = AgentConfig.checked(
        agent(chain=[CHAIN], absence=[ABSENCE], action=[ACTION], sketch=[SKETCH])
    )
    assert config.streams_of_things == {"power", "hot", "silences"}
    local = AgentConfig.checked(
        agent(source=[SOURCE | {"send": False}], sketch=[SKETCH | {"beside": False}])
    )
    assert local.local_streams == {"power"}
    with pytest.raises(ValueError, match="things_max of at most 2000"):
        AgentConfig.checked(
            agent(source=[SOURCE | {"things_max": SKETCHED_THINGS_MAX + 1}], sketch=[SKETCH])
        )
    with pytest.raises(ValueError, match="one_way"):
        AgentConfig.checked(agent(source=[SOURCE | {"mode": "one_way"}]))


async def test_an_action_is_told_which_thing_its_alert_is_of(tmp_path: Path) -> None:
    script, out = tmp_path / "siren.sh", tmp_path / "calls"
    script.write_text(f"#!/bin/sh\ncat >> {out}\necho >> {out}\n")
    script.chmod(0o755)
    out.write_text("")
    action = ACTION | {"stream": "power", "command": [str(script)], "pause_s": 0, "user": "root"}
    config = AgentConfig.checked(agent(action=[action | {"expire_s": 7 * 86400}])).action[0]
    with opened(tmp_path / "log") as events:
        runner = ActionRunner(config, "gw", events, Times(), random.Random(1), of_things=True)
        await runner.open()
        async with at_work(runner.run()):
            await bring(events, [*of("meter-1", 1), *of("meter-2", 2), reading(3)])
            await until(lambda: runner.counts()["done"] == 3)
    told = [orjson.loads(line) for line in out.read_text().splitlines() if line]
    assert {(one["device"], one["stream"], one["n"]) for one in told} == {
        ("meter-1", "power", 1),
        ("meter-2", "power", 2),
        ("gw", "power", 3),
    }


class Times(SystemClock):
    """The time of the readings, so that no alert is too old."""

    def now_ms(self) -> int:
        return 1_790_000_000_100


@pytest.mark.services
async def test_each_thing_has_sketches_of_its_own_and_a_stuck_one_holds_up_nobody(
    tmp_path: Path,
) -> None:
    config = AgentConfig.checked(agent(sketch=[SKETCH])).sketch[0]
    with opened(tmp_path) as events:
        sketcher = Sketcher(config, events, SystemClock(), random.Random(1), of_things=True)
        await sketcher.open()
        made = await events.consumer("made", streams_of(SKETCHES, of_things=True))
        async with at_work(sketcher.run()):
            await bring(events, [*of("a", 1, 2, 1001), *of("b", 10), *of("stuck", 1)])
            await bring(events, of("b", 1001, 2001))
            found = await read(made, 3)
    counted = {
        stream: [(t - 1_790_000_000_000, one["readings"]) for t, one in some]
        for stream, some in found.items()
    }
    assert counted == {
        f"{SKETCHES}/of/a": [(0, 2)],
        f"{SKETCHES}/of/b": [(0, 1), (1000, 1)],
    }
    assert {one["of_stream"] for some in found.values() for _, one in some} == {"power"}
    assert sketcher.counts()["counted"] == 7
