"""The bridges as a host application of Sparkplug B, for nodes with no agent near them: the contract
that the agent holds to, too, and who is the host of several bridges.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from tests.bridge.running import World, read, start
from tests.protocol.sparkplug import contract
from tests.protocol.sparkplug.contract import client
from tests.protocol.sparkplug.test_host import X, birth, message
from tests.services import PATIENCE_S, wait_until

EVENTS = 'edgewake_bridge_sparkplug_total{event="%s"}'


def host(here: World, name: str, host_id: str, group: str = "") -> None:
    """A bridge that is, or may become, the host."""
    more = f'group = "{group}"\n' if group else ""
    here.bridge(
        name,
        mqtt=f'[sparkplug]\nhost_id = "{host_id}"\nreorder_s = 0.2\nstream = "s_{host_id}"\n{more}',
    )


class Bridged:
    """What came into Kafka of a host's stream."""

    def __init__(self, here: World, name: str, host_id: str) -> None:
        self._here, self._name, self._host_id = here, name, host_id

    def _found(self) -> list[tuple[str, int, dict[str, Any]]]:
        values = [one.value() or b"" for one in read(self._here.config, topics.UP)]
        records = [record.decode(value) for value in values if b"s_" + self._own in value]
        return [
            (
                one.device,
                one.frame.t[0],
                {name: column[0] for name, column in one.frame.fields.items()},
            )
            for one in records
        ]

    @property
    def _own(self) -> bytes:
        return self._host_id.encode()

    def _measured(self) -> list[tuple[str, int, dict[str, Any]]]:
        return [one for one in self._found() if "stale" not in one[2]]

    async def rows(self, count: int) -> list[tuple[str, int, dict[str, Any]]]:
        await _until(lambda: len(self._measured()) >= count, f"{count} readings")
        return self._measured()

    async def stale(self, count: int) -> list[str]:
        def found() -> list[str]:
            return [thing for thing, _, values in self._found() if values.get("stale") is True]

        await _until(lambda: len(found()) >= count, f"{count} stale ones")
        return found()

    async def presences(self, count: int) -> list[tuple[str, bool]]:
        def found() -> list[tuple[str, bool]]:
            rows = read(self._here.config, topics.DEVICES)
            keys = [(one.key() or b"").decode().partition("|")[0] for one in rows]
            return [
                (key, orjson.loads(one.value() or b"{}")["state"] == "online")
                for key, one in zip(keys, rows, strict=True)
                if key.startswith(f"{self._host_id}.")
            ]

        await _until(lambda: len(found()) >= count, f"{count} presences")
        return found()

    async def refused(self, count: int) -> None:
        letters = [
            DeadLetter.from_headers(one.headers()) for one in read(self._here.config, topics.DEAD)
        ]
        lost = [one for one in letters if one.topic.startswith(f"spBv1.0/{self._host_id}/")]
        assert len(lost) == count, lost


async def _until(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


class Bridges:
    """Starts them."""

    def __init__(self, here: World, *, kills: bool = False) -> None:
        self._here, self._kills = here, kills

    @asynccontextmanager
    async def __call__(self, host_id: str) -> AsyncIterator[Bridged]:
        name = f"b-{host_id}"
        await asyncio.to_thread(host, self._here, name, host_id, host_id)
        process = self._here.parts[-1]
        yield Bridged(self._here, name, host_id)
        if self._kills:
            process.kill()
        else:
            assert await asyncio.to_thread(process.stop) == 0


async def test_it_says_that_it_is_there_and_when_it_leaves(here: World) -> None:
    start_one = Bridges(here)
    await contract.it_says_that_it_is_there_and_when_it_leaves(here.broker.port, start_one)


async def test_it_takes_births_data_and_deaths(here: World) -> None:
    await contract.it_takes_births_data_and_deaths(here.broker.port, Bridges(here))


@pytest.mark.long
async def test_it_asks_nodes_for_their_births(here: World) -> None:
    await contract.it_asks_nodes_for_their_births(here.broker.port, Bridges(here))


@pytest.mark.long
async def test_its_will_speaks_when_it_is_cut_off(here: World) -> None:
    start_one = Bridges(here, kills=True)
    await contract.its_will_speaks_when_it_is_cut_off(here.broker.port, start_one)


@pytest.mark.long
async def test_a_node_pays_for_what_it_takes_to_read_its_messages(here: World) -> None:
    """Half a megabyte that is refused, and again: nobody looks inside before its share is back."""
    (short, other) = "spBv1.0/dear/NBIRTH/n", "spBv1.0/dear/NBIRTH/quiet"
    host(here, "b-dear", "dear", "dear")
    dear = birth(0, 0, *({"name": f"m{n}", "datatype": 3, "int_value": n} for n in range(30_000)))
    assert 400_000 < len(dear) < 900_000
    topic = "spBv1.0/STATE/dear"
    with client(here.broker.port, topic) as node:
        await node.says(topic, online=True)
        for _ in range(40):
            node.publish(short, dear, qos=1)
        node.publish(other, birth(0, 0, X), qos=1)

    def letters() -> list[DeadLetter]:
        found = [DeadLetter.from_headers(one.headers()) for one in read(here.config, topics.DEAD)]
        return [one for one in found if one.topic == short]

    await _until(lambda: len(letters()) == 40, "each is refused")
    reasons = Counter(one.reason for one in letters())
    assert reasons["shape"] >= 1, "somebody looked inside"
    assert reasons["quota"] >= 20, reasons
    bridged = Bridged(here, "b-dear", "dear")
    assert [values for _, _, values in await bridged.rows(1)] == [{"x": 0.5}], "the control"


async def test_that_a_node_is_born_or_dies_is_heard_whatever_it_owes(here: World) -> None:
    """A death is said once: one that is left out is a node that is shown as if it were there."""
    host(here, "b-owes", "owes", "owes")
    dear = message(1, *({"name": f"m{n}", "datatype": 3, "int_value": n} for n in range(30_000)))
    begun = {"name": "bdSeq", "datatype": 4, "long_value": 0}
    topic, state = "spBv1.0/owes/%s/n", "spBv1.0/STATE/owes"
    with client(here.broker.port, state) as node:
        await node.says(state, online=True)
        node.publish(topic % "NBIRTH", birth(0, 0, X), qos=1)
        for _ in range(20):
            node.publish(topic % "NDATA", dear, qos=1)
        node.publish(topic % "NDEATH", message(None, begun), qos=1)
        node.publish(topic % "NBIRTH", birth(0, 1, X), qos=1)
        node.publish(topic % "NDATA", message(1, X), qos=1)
        bridged = Bridged(here, "b-owes", "owes")
        presences = await bridged.presences(3)

    def reasons() -> list[str]:
        found = [DeadLetter.from_headers(one.headers()) for one in read(here.config, topics.DEAD)]
        return [one.reason for one in found if "owes" in one.topic]

    assert presences == [("owes.n", True), ("owes.n", False), ("owes.n", True)]
    await _until(lambda: len(reasons()) >= 21, "all others are told")
    said = Counter(reasons())
    assert said["shape"] >= 1, "somebody looked inside"
    assert said["quota"] >= 1, "and then it owed, also after its death"
    assert [values for _, _, values in await bridged.rows(1)] == [{"x": 0.5}], "its data waits"


async def test_of_several_bridges_one_is_the_host_and_when_it_is_killed_another_one_is(
    here: World,
) -> None:
    topic, asked = "spBv1.0/STATE/two", "spBv1.0/g/NCMD/n"
    with client(here.broker.port, topic, asked) as node:
        host(here, "b-one", "two")
        first = here.parts[-1]
        await node.says(topic, online=True)
        host(here, "b-two", "two")
        node.publish("spBv1.0/g/NBIRTH/n", birth(0, 0, X))
        for seq in range(1, 21):
            data = message(seq, {"alias": 1, "double_value": float(seq)})
            node.publish("spBv1.0/g/NDATA/n", data, qos=1)
        both = Bridged(here, "b-one", "two")
        rows = await both.rows(21)
        assert [values["x"] for _, _, values in rows] == [0.5, *map(float, range(1, 21))]
        assert here.metric("b-one", EVENTS % "reading") == 21
        assert here.metric("b-two", EVENTS % "reading") == 0, "two hosts"

        first.kill()
        await node.says(topic, online=False)
        await node.says(topic, online=True)
        # The other one has heard no birth: it asks, and from the birth on takes all.
        data = message(21, {"alias": 1, "double_value": 21.0})
        node.publish("spBv1.0/g/NDATA/n", data, qos=1)
        await node.next(asked)
        node.publish("spBv1.0/g/NBIRTH/n", birth(22, 1, X | {"double_value": 21.0}))
        node.publish("spBv1.0/g/NDATA/n", message(23, {"alias": 1, "double_value": 23.0}), qos=1)
        rows = await both.rows(23)
        assert [values["x"] for _, _, values in rows][21:] == [21.0, 23.0]
        assert here.metric("b-two", EVENTS % "rebirth") == 1

        # The first by name is back, takes over in order, and nothing is taken twice.
        start(first)
        async with asyncio.timeout(PATIENCE_S):
            await node.says(topic, online=False)
            await node.says(topic, online=True)
        node.publish("spBv1.0/g/NDATA/n", message(24, {"alias": 1, "double_value": 24.0}), qos=1)
        await node.next(asked)
        node.publish("spBv1.0/g/NBIRTH/n", birth(25, 2, X | {"double_value": 25.0}))
        rows = await both.rows(24)
        assert [values["x"] for _, _, values in rows][23:] == [25.0]
        assert here.metric("b-one", EVENTS % "reading") == 1
