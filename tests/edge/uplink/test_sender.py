"""The agent against a real Mosquitto, with a tiny cloud that acknowledges as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.uplink.session import UplinkSession
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.ack import Ack, AckToken, Later, LaterReason
from tests.edge.helpers import json_of, reading
from tests.edge.peer import Peer, Taken
from tests.edge.running import drained, ns, running
from tests.services import PATIENCE_S, Mosquitto, free_ports, run_mosquitto


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of this test's own, to be killed."""
    with run_mosquitto(tmp_path / "broker") as service:
        yield service


@pytest.mark.parametrize("qos", [0, 1])
async def test_readings_arrive_in_order_and_acknowledged_ones_leave_the_log(
    tmp_path: Path, mosquitto: Mosquitto, qos: int
) -> None:
    async with (
        Peer(mosquitto.port) as peer,
        running(tmp_path, mosquitto.port, f"up-1-{qos}", qos=qos) as one,
    ):
        for at in range(0, 500, 50):
            await one.put(range(at, at + 50))
        await peer.until(lambda: len(ns(peer, f"up-1-{qos}")) == 500)
        assert ns(peer, f"up-1-{qos}") == list(range(500))
        await drained(one)
    first = peer.taken[0]
    assert (first.packet.qos, first.packet.content_type, first.packet.user_properties) == (
        qos,
        "ew/2",
        [],
    )
    assert abs((first.message.sent_at or 0) - SystemClock().now_ms()) < 60_000


async def test_mosquitto_takes_aliases_and_the_cloud_sees_topics_and_more_streams_than_it_takes(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """It takes ten of them; the eleventh stream and the status go under their names."""
    names = [f"s{n}" for n in range(13)]
    async with Peer(mosquitto.port) as peer, running(tmp_path, mosquitto.port, "alias-1") as one:
        for turn in range(3):
            for name in names:
                one.events.stream(name).append(reading(turn))
            await peer.until(
                lambda turn=turn: all(
                    len(peer.kept.readings("alias-1", name)) == turn + 1 for name in names
                )
            )  # type: ignore[misc]
        link = one.uplink._link
        assert link is not None
        assert len(link._aliases) == 10
        await drained(one)


async def test_a_lone_reading_is_sent_at_once(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """Accepted to sent: 20 ms in the median on an idle machine; the test leaves room for a busy
    one.
    """
    async with Peer(mosquitto.port) as peer, running(tmp_path, mosquitto.port, "up-2") as one:
        await one.put(range(1))
        await peer.until(lambda: len(ns(peer, "up-2")) == 1)
        times = []
        for n in range(1, 21):
            began = time.perf_counter()
            await one.put(range(n, n + 1))
            await peer.until(lambda n=n: len(ns(peer, "up-2")) == n + 1)  # type: ignore[misc]
            times.append(time.perf_counter() - began)
    assert sorted(times)[10] < 0.1


async def test_a_puback_frees_nothing(tmp_path: Path, mosquitto: Mosquitto) -> None:
    async with (
        Peer(mosquitto.port, answer=lambda _taken: None) as peer,
        running(tmp_path, mosquitto.port, "up-3", drain_s=0.1) as one,
    ):
        await one.put(range(5))
        await peer.until(lambda: len(peer.taken) >= 1)
        assert (await one.events.ask_status()).backlog_readings == 5
    async with Peer(mosquitto.port) as peer, running(tmp_path, mosquitto.port, "up-3"):
        await peer.until(lambda: ns(peer, "up-3") == list(range(5)))


async def test_a_publish_that_nobody_subscribed_is_sent_again_until_somebody_does(
    tmp_path: Path, broker: Mosquitto
) -> None:
    """PUBACK 0x10 is not delivery."""
    async with running(
        tmp_path / "log", broker.port, "up-4", ack_timeout_s=0.2, ack_timeout_max_s=0.4
    ) as one:
        await one.put(range(25))
        async with asyncio.timeout(PATIENCE_S):
            while one.uplink.session.refused_by_broker < 3:
                await asyncio.sleep(0.01)
        async with Peer(broker.port) as peer:
            await peer.until(lambda: len(ns(peer, "up-4")) == 25)


async def test_silence_of_the_cloud_sends_the_same_bytes_again(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    seen: list[Taken] = []

    def second_time(taken: Taken) -> Ack | None:
        seen.append(taken)
        return Ack(AckToken(0, 1)) if len(seen) > 1 else None

    async with (
        Peer(mosquitto.port, answer=second_time) as peer,
        running(tmp_path, mosquitto.port, "up-5", ack_timeout_s=0.2, ack_timeout_max_s=1) as one,
    ):
        await one.put(range(5))
        await peer.until(lambda: len(seen) == 2)
    first, second = (taken.message for taken in seen)
    assert (first.body, first.correlation_data) == (second.body, second.correlation_data)
    assert first.sent_at < second.sent_at  # type: ignore[operator]


async def test_a_refused_frame_becomes_a_gap_and_the_next_ones_flow(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    def refuse_first(taken: Taken) -> Ack:
        if taken.frame.frame == 1 and not taken.frame.gap:
            return Ack(AckToken(0, 9, dead=True), RejectReason.FIELD_TYPE, "n: number, was string")
        return Ack(AckToken(0, 1))

    async with (
        Peer(mosquitto.port, answer=refuse_first) as peer,
        running(tmp_path, mosquitto.port, "up-6") as one,
    ):
        await one.put(range(3))
        await peer.until(lambda: peer.taken)
        await one.put(range(3, 6))
        # The gap first: until it fills the refused frame's place, the frames have a hole.
        await peer.until(lambda: peer.kept.gaps("up-6", "speed") and ns(peer, "up-6")[-1:] == [5])
        ((reason, count),) = peer.kept.gaps("up-6", "speed")
        assert reason == "rejected"
        assert ns(peer, "up-6") == list(range(count, 6))
        assert one.uplink.rejected == 1


async def test_a_stream_that_the_cloud_asks_to_wait_blocks_no_other_and_loses_nothing(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """Its frames fill a window of two; yet everything of the other stream gets through
    meanwhile.
    """
    is_decided = False

    def later(taken: Taken) -> Ack | Later:
        return (
            Ack(AckToken(0, 1))
            if is_decided or taken.stream == "other"
            else Later(LaterReason.FIELD_TYPE, 200, "n: number or text?")
        )

    async with (
        Peer(mosquitto.port, answer=later) as peer,
        running(
            tmp_path, mosquitto.port, "up-7", inflight_frames_max=2, frame_readings_max=5
        ) as one,
    ):
        await one.put(range(50))
        await peer.until(lambda: len(peer.taken) >= 2)
        other = one.events.stream("other")
        await other.accepted(other.append_all(reading(n) for n in range(50)))
        await peer.until(lambda: len(peer.kept.readings("up-7", "other")) == 50)
        assert ns(peer, "up-7") == []
        assert one.uplink.session.postponed >= 2
        is_decided = True
        await peer.until(lambda: ns(peer, "up-7") == list(range(50)))
        await drained(one)


async def test_a_stream_that_nobody_answers_takes_no_more_than_its_share(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    def answer(taken: Taken) -> Ack | None:
        return Ack(AckToken(0, 1)) if taken.stream == "alarm" else None

    async with (
        Peer(mosquitto.port, answer=answer) as peer,
        running(tmp_path, mosquitto.port, "up-13", inflight_frames_max=8, drain_s=0) as one,
    ):
        await one.put(range(500))
        await peer.until(lambda: len(peer.taken) >= 4)
        alarm = one.events.stream("alarm")
        for n in range(20):
            await alarm.accepted(alarm.append(reading(n)))
        await peer.until(lambda: len(peer.kept.readings("up-13", "alarm")) == 20)
        assert not ns(peer, "up-13"), "the fault did not fire"


async def test_a_killed_broker_loses_nothing(tmp_path: Path, broker: Mosquitto) -> None:
    """kill -9, five times: what it had received since its last save and not delivered is gone from
    it, and comes again.
    """
    total = 0
    peers = []
    async with running(tmp_path / "log", broker.port, "up-7") as one:
        for life in range(5):
            async with Peer(broker.port) as peer:
                peers.append(peer)
                await one.put(range(total, total + 300))
                total += 300
                if life % 2:
                    await peer.until(lambda peer=peer: len(peer.taken) > 3)  # type: ignore[misc]
                broker.process.kill()
            assert not broker.process.is_running(), "the fault did not fire"
            await one.put(range(total, total + 20))
            total += 20
            await asyncio.to_thread(broker.start)
        async with Peer(broker.port) as peer:
            peers.append(peer)
            await drained(one)
    last = peers[-1]
    for earlier in peers[:-1]:
        for taken in earlier.taken:
            if taken not in last.taken:
                last.kept.add(taken)
    assert ns(last, "up-7") == list(range(total))


async def test_control_an_uplink_that_trusts_the_puback_loses(
    tmp_path: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker dies with what it acknowledged: freeing at the PUBACK must lose, or the test above
    shows nothing.
    """

    def trusting(self: UplinkSession, packet_id: int, reason: int, now_s: float) -> None:
        key = self._by_packet.pop(packet_id, None)
        if key is not None:
            one.uplink._free(key, Ack(AckToken(0, 0)))

    monkeypatch.setattr(UplinkSession, "on_puback", trusting)
    async with running(tmp_path / "log", broker.port, "up-8") as one:
        await one.put(range(100))
        await drained(one)
        broker.process.kill()
        await asyncio.to_thread(broker.start)
        async with Peer(broker.port) as peer:
            await one.put(range(100, 101))
            await peer.until(lambda: len(peer.taken) >= 1)
            assert sum(len(taken.frame.t) for taken in peer.taken) < 101


async def test_a_dead_line_is_noticed_and_what_it_carried_comes_again(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """A half-open connection: bytes go into a proxy that swallows them.

    Noticed within two keepalives.
    """
    (port,) = free_ports(1)

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", mosquitto.port)

        async def copy(
            source: asyncio.StreamReader, target: asyncio.StreamWriter, alive: asyncio.Event
        ) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65_536):
                    if alive.is_set():
                        target.write(data)
                target.close()

        mine = asyncio.Event()
        mine.set()
        lines.append(mine)
        await asyncio.gather(copy(reader, up_writer, mine), copy(up_reader, writer, mine))

    lines: list[asyncio.Event] = []
    server = await asyncio.start_server(proxy, "127.0.0.1", port)
    async with Peer(mosquitto.port) as peer, running(tmp_path, port, "up-9", keepalive_s=1) as one:
        await one.put(range(1))
        await peer.until(lambda: ns(peer, "up-9") == [0])
        lines[0].clear()
        await one.put(range(1, 20))
        await peer.until(lambda: ns(peer, "up-9") == list(range(20)))
    server.close()


async def test_one_way_readings_are_plain_objects_and_never_touch_the_log(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    async with Peer(mosquitto.port) as peer, running(tmp_path, mosquitto.port, "up-10") as one:
        one.uplink.send_one_way("fast", [reading(n) for n in range(3)])
        await peer.until(lambda: len(peer.taken) == 3)
        assert (await one.events.ask_status()).backlog_readings == 0
    packet = peer.taken[0].packet
    assert (int(packet.qos), packet.content_type, packet.response_topic) == (0, None, None)
    assert [json_of(taken.packet.payload)["n"] for taken in peer.taken] == [0, 1, 2]


async def test_one_way_readings_wait_in_a_bounded_queue_that_drops_its_oldest(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    async with running(tmp_path, port, "up-11", one_way_queue_max=10) as one:
        one.uplink.send_one_way("fast", [reading(n) for n in range(25)])
        assert one.uplink.one_way.dropped == 15


async def test_the_cloud_is_told_how_many_one_way_readings_were_lost(tmp_path: Path) -> None:
    """By a gap, when the connection is there again; by the next agent where it was stopped
    before.
    """
    with run_mosquitto(tmp_path / "broker") as broker:
        async with running(
            tmp_path / "log", free_ports(1)[0], "up-13", one_way_queue_max=10
        ) as one:
            one.uplink.send_one_way("fast", [reading(n) for n in range(25)])
            assert (await one.events.ask_status()).lost == {}, "nothing is written meanwhile"
        async with (
            Peer(broker.port) as peer,
            running(tmp_path / "log", broker.port, "up-13", one_way_queue_max=10) as one,
        ):
            await peer.until(
                lambda: (
                    sorted(peer.kept.gaps("up-13", "fast"))
                    == [("one_way_queue", 15), ("stopped", 10)]
                )
            )
            one.uplink.send_one_way("fast", [reading(n) for n in range(5)])
            await peer.until(lambda: one.uplink.one_way.sent == 5)
            one.uplink.one_way.lose("fast", 3, "refused")
            one.uplink._said_lost_s = float("-inf")  # ten seconds later
            await peer.until(lambda: ("refused", 3) in peer.kept.gaps("up-13", "fast"))
            assert (await one.events.ask_status()).lost == {
                "one_way_queue": 15,
                "stopped": 10,
                "refused": 3,
            }


async def test_birth_status_and_last_will_are_said(tmp_path: Path, broker: Mosquitto) -> None:
    async with Peer(broker.port) as peer:
        async with running(tmp_path / "log", broker.port, "up-12", status_interval_s=0.1):
            await peer.until(lambda: len(peer.statuses) >= 3)
        await peer.until(lambda: json_of(peer.statuses[-1])["state"] == "offline")
        one = running(tmp_path / "log", broker.port, "up-12")
        before = len(peer.statuses)
        running_one = await one.__aenter__()
        await peer.until(lambda: len(peer.statuses) > before)
        assert (
            json_of(peer.statuses[-1])["connected_at"] > json_of(peer.statuses[0])["connected_at"]
        ), "a return is no repetition"
        running_one.uplink._link._transport.abort()  # type: ignore[union-attr]
        await peer.until(lambda: json_of(peer.statuses[-1]).get("sent_at") is None)
        await one.__aexit__(None, None, None)


async def test_a_name_server_that_is_silent_does_not_hold_up_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, answer = threading.Event(), threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        reached.set()
        answer.wait(2 * PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    async with running(tmp_path, 1, "up-14", mqtt=BrokerConfig(host="broker.example")) as one:
        async with asyncio.timeout(PATIENCE_S):
            while not reached.is_set():
                await asyncio.sleep(0.01)
        one.uplink.drain()
        async with asyncio.timeout(PATIENCE_S):
            while not one.uplink.session.stopped:
                await asyncio.sleep(0.01)
    assert not answer.is_set()
    answer.set()
