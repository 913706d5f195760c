"""The story: every part dies once while data flows and clients read, sleep and move, and the ledger
finds nothing wrong.

Three agents tail files that the test writes, two bridges share the way to Kafka, Spark keeps
ten-second windows, two access servers show readings and results to fifteen clients and to another
agent, which keeps them in its log. Two of the clients read slowly and five sleep and come back on
the other server. Parts that do not stand one behind the other die at the same time. One client
sleeps through the end under a lease of the push proxy, which is dead when the readings come that it
is to be woken for. The ledger knows the lines that were written and what each client was shown, and
nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from edgewake.edge.log.damage.audit import export
from edgewake.protocol import topics
from edgewake.protocol.ops import result
from edgewake.simulators.clients import Event, Follower
from edgewake.simulators.faults import Fault
from edgewake.simulators.ledger import Delivery, Ledger, Reading, ReportedGap, WindowRow
from tests.bridge.running import read
from tests.push.receiver import receiving
from tests.story.feeder import Feeder
from tests.story.looks import Look, batches, look
from tests.story.system import OPS_KEY, System

AGENTS = ("agent-a", "agent-b", "agent-c")
FOLLOWER = "follower"
"""An agent that follows the query's results, and has them in its log."""
STREAM = "story"
QUERY = "story_10s"
WINDOW_MS = 10_000
PER_SECOND = 60.0
"""Lines of each agent: enough that a part that dies has work in its hands."""
ACCESS = "access"
VICTIMS = (
    ("agent-a", ACCESS, FOLLOWER),
    ("bridge-1", "analysis", "ops"),
    ("sequencer", "mosquitto"),
    ("kafka",),
    ("push",),
)
"""Parts that are killed together, one turn after another; of the access servers that one dies which
most clients read from."""
WOKEN_AFTER = 100
"""Readings of each agent that come while the push proxy is dead, before the one that wakes the
sleeper."""
SLOW_PAUSE_S = 0.5
"""What a slow client waits after each piece of at most some kilobytes."""
BEHIND = 200
"""Readings that a slow client must once have been behind the steady ones, else it was not slow."""
RECOVERY_S = 240.0
ANALYSIS = "maintenance_s = 1\ncalm_trigger_ms = 1000\n"
"""A batch a second, and a turn of Spark's maintenance with each: what takes ten minutes otherwise
happens in half a minute."""
OF_A_RESULT = ("window_start", "device", "revision", "readings", "total", "low", "high")
BATCHES_MIN = 15
"""Batches that the lane has done in the end: after ten Spark uploads its first snapshot of the
state."""
SQL = f"""-- name: {QUERY}
-- description: What the story's ledger can add up by itself.
-- lateness: 5 minutes
SELECT device, count(*) AS readings, sum(value) AS total, min(value) AS low, max(value) AS high
FROM {STREAM}
GROUP BY window(event_time, '10 seconds'), device
"""


class Notes:
    """Writes down for the ledger what clients are shown."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def on_event(self, client: str, event: Event) -> None:
        body = json.loads(event.data)
        if event.name == "gap":
            self.ledger.gap(
                ReportedGap(
                    client,
                    body.get("lost") or 0,
                    body.get("device"),
                    body.get("epoch"),
                    body.get("seq"),
                )
            )
        elif event.name == "watermark":
            self.ledger.watermark(client, body["watermark"])
        elif event.name == "message" and "query" in body:
            self.ledger.window(
                WindowRow(
                    client, event.id, body["device"], body["window_start"], body["window_end"],
                    body["revision"],
                    body["readings"], body["total"], body["low"], body["high"],
                )
            )  # fmt: skip
        elif event.name == "message":
            reading = Reading(body["device"], body["n"], body["t"], body["value"])
            self.ledger.delivered(Delivery(client, event.id, reading, body["epoch"], body["seq"]))


class Crowd:
    """Fifteen clients: by kind, and which of them sleep."""

    def __init__(self, system: System, notes: Notes) -> None:
        def make(
            kind: str, count: int, streams: Sequence[str], pause_s: float = 0.0
        ) -> list[Follower]:
            names = [f"{kind}-{i + 1}" for i in range(count)]
            servers = system.servers
            return [
                Follower(
                    name,
                    servers[i % 2 :] + servers[: i % 2],
                    streams,
                    notes.on_event,
                    pause_s=pause_s,
                )
                for i, name in enumerate(names)
            ]

        steady, self.slow, both = (
            make("steady", 4, [STREAM]),
            make("slow", 2, [STREAM], SLOW_PAUSE_S),
            make("both", 3, [STREAM, QUERY]),
        )
        sleepers_raw, sleepers_both = (
            make("sleeper", 3, [STREAM]),
            make("sleeper-both", 2, [QUERY, STREAM]),
        )
        self.awake = [*steady, *self.slow, *both]
        """Those that never sleep by themselves: they are cut off only when their server dies."""
        [self.leased] = make("leased", 1, [STREAM])
        self.all = [*self.awake, *sleepers_raw, *sleepers_both, self.leased]
        self.sleepers = [*sleepers_raw, *sleepers_both]
        self.window_readers = [client.name for client in (*both, *sleepers_both)]

    async def take_turns(self, turn: int) -> None:
        """Half of the sleepers go to sleep, the other half wakes on the other server."""
        for i, client in enumerate(self.sleepers):
            if (i + turn) % 2 == 0 and client.awake:
                await client.sleep()
            elif (i + turn) % 2 and not client.awake:
                client.wake(on_next_server=True)

    def wake_all(self) -> None:
        """Everybody reads."""
        for client in self.all:
            if not client.awake:
                client.wake(on_next_server=True)


class Story:
    """One run."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.ledger = Ledger()
        self.crowd = Crowd(system, Notes(self.ledger))
        self.wake_ups: list[dict[str, Any]] = []
        self.feeder = Feeder(
            self.ledger,
            {agent: system.input_file(agent) for agent in AGENTS},
            per_second=PER_SECOND,
        )
        self.witness = self.crowd.all[0].name
        self.faults: list[Fault] = []
        self.looks: list[Look] = []
        self.most_behind = 0
        self.cut_off: list[tuple[Follower, int]] = []
        """Clients whose server was killed, with how often they had connected before."""

    def _on_the_way(self) -> int:
        """Readings written and not yet shown to the witness."""
        return len(self.ledger.readings) - len(self.ledger.deliveries[self.witness])

    def _note_slow_ones(self) -> None:
        shown = len(self.ledger.deliveries[self.witness])
        for client in self.crowd.slow:
            self.most_behind = max(
                self.most_behind, shown - len(self.ledger.deliveries[client.name])
            )

    def _readers(self) -> list[list[Follower]]:
        """Who is connected to each access server."""
        return [
            [c for c in self.crowd.all if c.connected.is_set() and c.server == server]
            for server in self.system.servers
        ]

    async def kill_and_restart(self, victims: Sequence[str]) -> None:
        """Kill parts while readings are on their way, start them again, and see everything flow
        again.
        """
        self._note_slow_ones()
        await self.system.until(
            lambda: self._on_the_way() > 0,
            f"readings are on their way when {victims} are to be killed",
        )
        if ACCESS in victims:
            await self.system.until(
                lambda: any(self._readers()), "somebody reads from a server that is to be killed"
            )
            busiest = max(self._readers(), key=len)
            self.cut_off = [(client, client.connects) for client in busiest]
            victims = [
                f"access-{self._readers().index(busiest) + 1}" if victim == ACCESS else victim
                for victim in victims
            ]
        self.faults += [self.system.kill(victim) for victim in victims]
        written = len(self.ledger.readings)
        await self.system.until(
            lambda: len(self.ledger.readings) > written + PER_SECOND,
            "lines are written while they are dead",
        )
        await self.system.start(*victims)
        written = len(self.ledger.readings)
        await self.system.until(
            lambda: len(self.ledger.deliveries[self.witness]) >= written,
            f"{self.witness} catches up after {victims}",
            timeout_s=RECOVERY_S,
        )
        if "analysis" in victims:
            await self._until_windows_go_on()

    async def _until_windows_go_on(self) -> None:
        reader = self.crowd.window_readers[0]
        shown = len(self.ledger.windows[reader])
        await self.system.until(
            lambda: len(self.ledger.windows[reader]) > shown, "windows go on", timeout_s=RECOVERY_S
        )

    async def sleep_under_a_lease(self, endpoint: str) -> dict[str, Any]:
        """The leased client goes to sleep, and is to be woken by a reading that has not been
        written yet.
        """
        client = self.crowd.leased
        await client.sleep()
        self.awaited_n = max(self.feeder.written.values()) + WOKEN_AFTER
        body = {
            "subscription": {"streams": [STREAM], "where": f"n > {self.awaited_n}"},
            "cursor": client.cursor,
            "endpoint": {"url": endpoint},
            "wake": {"min_interval_s": 0.5},
        }
        async with httpx.AsyncClient(timeout=30) as http, asyncio.timeout(RECOVERY_S):
            while (
                answer := await http.post(f"{self.system.push_url}/v1/leases", json=body)
            ).status_code == 503:
                # Kafka has just died: its partitions are on their way back.
                await asyncio.sleep(float(answer.headers["retry-after"]))
        assert answer.status_code == 201, answer.text
        lease: dict[str, Any] = answer.json()
        return lease

    async def kill_the_push_proxy(self) -> None:
        """What the sleeper waits for comes while nobody watches for it; the restarted proxy wakes
        it.
        """
        async with receiving() as receiver:
            lease = await self.sleep_under_a_lease(receiver.url)
            self.faults.append(self.system.kill("push"))
            await self.system.until(
                lambda: min(self.feeder.written.values()) > self.awaited_n,
                "the awaited readings are written",
            )
            assert receiver.calls == []
            await self.system.start("push")
            (call, *_) = await receiver.got(1, timeout_s=RECOVERY_S)
            self.wake_ups.append(call.verified(lease["secret"]))

    async def queries(self) -> dict[str, str]:
        """Query → state, as the operations API has it."""
        async with httpx.AsyncClient(timeout=30, headers={"X-API-Key": OPS_KEY}) as http:
            answer = await http.get(f"{self.system.ops_url}/v1/queries")
        assert answer.status_code == 200, answer.text
        return {query["name"]: query["state"] for query in answer.json()["items"]}

    def results(self) -> list[tuple[Any, ...]]:
        """Every result that the analysis told, each revision of each window, sorted."""
        told = read(
            self.system.kafka_config, topics.query_topic(QUERY, self.system.registered[QUERY])
        )
        rows = [json.loads(one.value()) for one in told if not result.is_watermark(one.key())]
        return sorted(tuple(row[name] for name in OF_A_RESULT) for row in rows)

    def followed(self) -> list[tuple[Any, ...]]:
        """The same as the follower's log has it."""
        rows = export(self.system.directory / FOLLOWER, "echo")
        return sorted(
            tuple(row.get(f"of_{name}", row.get(name)) for name in OF_A_RESULT) for row in rows
        )

    async def until_drained(self) -> None:
        """Every client has been shown everything; the slow ones, which have shown what they had to,
        make haste. Looking costs more than reading, so it looks rarely.
        """
        for client in self.crowd.slow:
            client.pause_s = 0.0
        for client in self.crowd.all:
            await self._until_none(
                partial(self.ledger.missing, client.name), f"{client.name} has every reading"
            )
        for name in self.crowd.window_readers:
            await self._until_none(
                partial(self.ledger.unfinished_windows, name, WINDOW_MS), f"{name} has every window"
            )

    async def _until_none(self, rest: Callable[[], Collection[object]], what: str) -> None:
        await self.system.until(lambda: not rest(), what, timeout_s=RECOVERY_S, every_s=0.5)

    async def run(self) -> None:
        await self.system.start(
            "access-1",
            "access-2",
            "push",
            "ops",
            "analysis",
            "sequencer",
            "bridge-1",
            "bridge-2",
            *AGENTS,
            FOLLOWER,
        )
        feeding = asyncio.create_task(self.feeder.run(), name="feeder")
        self.crowd.wake_all()
        await self.system.until(
            lambda: all(self.ledger.deliveries[client.name] for client in self.crowd.all),
            "everybody is shown readings",
        )
        await self._until_windows_go_on()
        for turn, victims in enumerate(VICTIMS):
            await self.crowd.take_turns(turn)
            await (
                self.kill_the_push_proxy()
                if victims == ("push",)
                else self.kill_and_restart(victims)
            )
            assert not feeding.done()
            self.looks.append(look(self.system))
        assert (await self.queries())[QUERY] == "running"
        lane = self.system.directory / "analysis" / "checkpoints" / STREAM / "plain"
        await self.system.until(
            lambda: batches(lane) >= BATCHES_MIN and list(lane.rglob("*.snapshot")),
            "snapshots of the state are made",
            timeout_s=RECOVERY_S,
        )
        self.looks.append(look(self.system))
        self.feeder.stop()
        await feeding
        self.crowd.wake_all()
        await self.until_drained()
        assert self.results()
        await self.system.until(
            lambda: self.followed() == self.results(),
            f"{FOLLOWER}'s log has each result once",
            timeout_s=RECOVERY_S,
            every_s=1.0,
        )
        # A server that is asked to stop sends what it still holds, so that a repeat on its way is
        # seen too.
        for server in ("access-1", "access-2"):
            assert self.system.stop(server) == 0
        for client in self.crowd.all:
            await client.sleep()


async def test_every_part_is_killed_once_and_nothing_is_lost_doubled_or_wrong(tmp_path: Path):
    async with System(
        tmp_path, agents=AGENTS, stream=STREAM, analysis=ANALYSIS, followers={FOLLOWER: QUERY}
    ) as system:
        system.register(QUERY, SQL)
        story = Story(system)
        await story.run()
    verdict = story.ledger.judge(
        raw_clients=[client.name for client in story.crowd.all],
        window_clients=story.crowd.window_readers,
        window_ms=WINDOW_MS,
    )
    assert verdict.clean, str(verdict)
    assert_the_judge_is_awake(story)
    assert [found.too_much() for found in story.looks if found.too_much()] == [], "files or memory"
    assert not any(story.ledger.gaps.values()), "nothing was lost, so nobody may be told of a loss"
    died = [ACCESS if fault.target.startswith(ACCESS) else fault.target for fault in story.faults]
    assert died == [victim for victims in VICTIMS for victim in victims]
    assert [wake_up["streams"] for wake_up in story.wake_ups] == [[STREAM]]
    assert story.most_behind > BEHIND, "the slow clients were not slow"
    assert story.cut_off, "nobody was connected to the server that died"
    assert [client.name for client, before in story.cut_off if client.connects <= before] == [], (
        "cut off and did not come back"
    )
    assert min(client.sleeps for client in story.crowd.sleepers) >= 2
    assert len(story.ledger.readings) > 3 * PER_SECOND * 20


def assert_the_judge_is_awake(story: Story) -> None:
    """The control: one event taken away, one shown twice, one window changed, and the same judge
    over the same run says so.
    """
    reader = story.crowd.window_readers[0]
    deliveries, rows = story.ledger.deliveries[reader], story.ledger.windows[reader]
    taken = deliveries.pop(len(deliveries) // 2)
    deliveries.append(deliveries[0])
    latest = max(range(len(rows)), key=lambda i: (rows[i].start_ms, rows[i].revision))
    rows[latest] = replace(rows[latest], count=rows[latest].count + 1)
    verdict = story.ledger.judge(raw_clients=[reader], window_clients=[reader], window_ms=WINDOW_MS)
    assert (len(verdict.lost), len(verdict.twice), len(verdict.wrong_windows)) == (1, 1, 1), (
        f"{taken}: {verdict}"
    )
