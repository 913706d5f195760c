"""What the broker cannot or will not take costs only the stream that brings it."""

from __future__ import annotations

import os
from pathlib import Path

import mqtt5
import pytest

from edgewake.protocol.frames.frame_bytes import read
from tests.edge import foreign_frame
from tests.edge.helpers import json_of
from tests.edge.odd_broker import odd_broker
from tests.edge.peer import Peer
from tests.edge.running import Running, drained, running
from tests.services import run_mosquitto

OK = mqtt5.PubAckReasonCode.SUCCESS


def blob(size: int) -> str:
    """Text that cannot be compressed below half."""
    return os.urandom(size // 2).hex()


async def put(one: Running, stream: str, *rows: dict[str, object]) -> None:
    log = one.events.stream(stream)
    await log.accepted(log.append_all((1_790_000_000_000 + n, row) for n, row in enumerate(rows)))  # type: ignore[misc]


def ns_of(peer: Peer, device: str, stream: str) -> list[object]:
    return [row["n"] for row in peer.kept.readings(device, stream)]


async def test_a_stream_without_the_right_to_publish_blocks_no_other_and_flows_once_it_may(
    tmp_path: Path,
) -> None:
    acl = tmp_path / "acl"
    rights = (
        "topic read #\ntopic write ew/v1/dev/up/alarm\ntopic write ew/v1/dev/status\ntopic write "
        "ew/v1/dev/acks\n"
    )
    acl.write_text(rights, "utf-8")
    acl.chmod(0o644)
    tmp_path.chmod(0o755)
    with run_mosquitto(tmp_path / "broker", f"acl_file {acl}") as broker:
        async with (
            Peer(broker.port) as peer,
            running(
                tmp_path / "log",
                broker.port,
                "dev",
                inflight_frames_max=8,
                ack_timeout_s=1,
                ack_timeout_max_s=1,
            ) as one,
        ):
            for n in range(24):
                await put(one, "secret", *({"n": 8 * n + i} for i in range(8)))
                await put(one, "alarm", {"n": n})
            await peer.until(lambda: ns_of(peer, "dev", "alarm") == list(range(24)))
            assert one.uplink.session.refused_by_broker >= 1, "the fault did not fire"
            assert not (tmp_path / "log" / "quarantine").exists(), (
                "the readings are good: a right can be granted"
            )
            acl.write_text(rights + "topic write ew/v1/dev/up/secret\n", "utf-8")
            broker.process.signal(1)
            await peer.until(lambda: ns_of(peer, "dev", "secret") == list(range(192)))


async def test_frames_are_cut_to_the_broker_s_limit_and_a_larger_reading_is_dropped_and_reported(
    tmp_path: Path,
) -> None:
    """Accepted while offline, under wider bounds: a batch of 200 KB, and one reading of 28 KB
    compressed where the broker takes 20.
    """
    with run_mosquitto(tmp_path / "broker", "max_packet_size 20000") as broker:
        broker.process.kill()
        async with running(tmp_path / "log", broker.port, "dev-1", frame_readings_max=100) as one:
            await put(one, "big", *({"n": n, "blob": blob(8_000)} for n in range(25)))
            await put(one, "big", {"n": 25, **{f"b{i}": blob(8_000) for i in range(7)}})
            await put(one, "big", {"n": 26})
            broker.start()
            async with Peer(broker.port) as peer:
                for n in range(20):
                    await put(one, "alarm", {"n": n})
                await peer.until(lambda: ns_of(peer, "dev-1", "alarm") == list(range(20)))
                await peer.until(lambda: ns_of(peer, "dev-1", "big") == [*range(25), 26])
                assert peer.kept.gaps("dev-1", "big") == [("rejected", 1)]
                await drained(one)
            assert one.uplink.refused.quarantined == 1
    (kept,) = (tmp_path / "log" / "quarantine").iterdir()
    header, _, payload = kept.read_bytes().partition(b"\n")
    said = json_of(header)
    assert (said["stream"], said["readings"]) == ("big", 1)
    assert "the broker takes at most 20000" in str(said["why"])
    assert read(payload).fields["n"] == [25]


async def test_a_limit_that_the_broker_does_not_tell_is_learned_from_its_disconnect(
    tmp_path: Path,
) -> None:
    def answer(packet: mqtt5.PublishPacket) -> mqtt5.DisconnectReasonCode | mqtt5.PubAckReasonCode:
        return mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE if len(packet.payload) > 20_000 else OK

    async with odd_broker(answer=answer) as broker, running(tmp_path, broker.port, "dev") as one:
        await put(one, "big", {"n": 1, **{f"b{i}": blob(8_000) for i in range(7)}})
        await put(one, "big", {"n": 2})
        await put(one, "alarm", {"n": 1})
        await broker.until(lambda: broker.ups("alarm"))
        await drained(one)
        assert one.uplink.refused.quarantined == 1
        assert len(broker.connects) == 2


async def test_a_broker_without_qos_1_is_served_with_qos_0(tmp_path: Path) -> None:
    connack = {"max_qos": mqtt5.QoS.AT_MOST_ONCE}
    async with (
        odd_broker(connack=connack, refuses_will_qos=True) as broker,
        running(tmp_path, broker.port, "dev") as one,
    ):
        await one.put(range(30))
        await broker.until(lambda: len(broker.ups("speed")) >= 1)
        await drained(one)
        assert {int(packet.qos) for packet in broker.publishes} == {0}
        assert one.uplink.session.resent == 0, "it was answered"
        assert [int(packet.will.qos) for packet in broker.connects if packet.will] == [1, 0]


async def test_a_topic_is_said_once_per_connection_as_far_as_the_broker_takes_aliases(
    tmp_path: Path,
) -> None:
    async with (
        odd_broker(connack={"topic_alias_max": 1}, acknowledges=False) as broker,
        running(tmp_path, broker.port, "dev") as one,
    ):
        await put(one, "first", {"n": 1})
        await broker.until(lambda: len(broker.publishes) >= 2)
        for n in (2, 3):
            await put(one, "second", {"n": n})
            await broker.until(
                lambda n=n: (
                    sum(packet.topic.endswith("/second") for packet in broker.publishes) >= n - 1
                )
            )  # type: ignore[misc]
        await put(one, "first", {"n": 4})
        await broker.until(lambda: any(not packet.topic for packet in broker.publishes))
        said = [
            (packet.topic, packet.topic_alias)
            for packet in broker.publishes
            if not packet.topic.endswith("/status")
        ]
        assert said.count(("ew/v1/dev/up/first", 1)) == 1
        assert set(said) == {("ew/v1/dev/up/first", 1), ("ew/v1/dev/up/second", None), ("", 1)}


async def test_aliases_that_a_broker_refuses_are_used_no_more(tmp_path: Path) -> None:
    def answer(packet: mqtt5.PublishPacket) -> mqtt5.DisconnectReasonCode | mqtt5.PubAckReasonCode:
        return mqtt5.DisconnectReasonCode.TOPIC_ALIAS_INVALID if packet.topic_alias else OK

    async with (
        odd_broker(connack={"topic_alias_max": 5}, answer=answer) as broker,
        running(tmp_path, broker.port, "dev") as one,
    ):
        await put(one, "speed", {"n": 1})
        await drained(one)
        assert [packet.topic_alias for packet in broker.ups("speed")] == [1, None]
        assert len(broker.connects) == 2


async def test_the_brokers_receive_maximum_is_obeyed(tmp_path: Path) -> None:
    held: list[int] = []

    def silent(packet: mqtt5.PublishPacket) -> None:
        held.append(packet.packet_id or 0)

    async with (
        odd_broker(connack={"receive_max": 3}, answer=silent) as broker,
        running(tmp_path, broker.port, "dev", drain_s=0) as one,
    ):
        for n in range(30):
            await one.put(range(n, n + 1))
        await broker.until(lambda: len(held) == 3)
        await broker.until(lambda: broker.pings >= 0)
        assert one.uplink.session.largest > 0
        assert one.uplink._room() == 0
        assert len(held) == 3


async def test_a_broker_that_takes_next_to_nothing_is_not_used(tmp_path: Path) -> None:
    """Or everything would be too large for it, and end in quarantine."""
    async with (
        odd_broker(connack={"max_packet_size": 100}) as broker,
        running(tmp_path, broker.port, "dev") as one,
    ):
        await one.put(range(3))
        await broker.until(lambda: len(broker.connects) >= 2)
        assert broker.publishes == []
        assert one.uplink.refused.quarantined == 0


async def test_a_broker_that_answers_a_subscription_with_nothing_is_left_and_tried_again(
    tmp_path: Path,
) -> None:
    async with odd_broker(empty_subacks=2) as broker, running(tmp_path, broker.port, "dev") as one:
        await one.put(range(3))
        await broker.until(lambda: len(broker.connects) == 3)
        await drained(one)


async def test_a_broker_that_answers_pings_and_confirms_nothing_is_given_up(tmp_path: Path) -> None:
    """The second connection confirms; with the first everything would wait for ever."""

    def answer(_packet: mqtt5.PublishPacket) -> mqtt5.PubAckReasonCode | None:
        return OK if len(broker.connects) > 1 else None

    async with (
        odd_broker(answer=answer) as broker,
        running(tmp_path, broker.port, "dev", keepalive_s=1) as one,
    ):
        await one.put(range(3))
        await broker.until(lambda: len(broker.connects) == 2)
        await drained(one)
        assert broker.pings >= 1, "it was alive for the keepalive"
        first, second = (foreign_frame.opened(packet).body for packet in broker.ups("speed")[:2])
        assert first == second


@pytest.mark.parametrize(
    "reason",
    [mqtt5.PubAckReasonCode.PAYLOAD_FORMAT_INVALID, mqtt5.PubAckReasonCode.TOPIC_NAME_INVALID],
)
async def test_what_the_broker_refuses_for_good_is_taken_out_and_the_rest_flows(
    tmp_path: Path, reason: mqtt5.PubAckReasonCode
) -> None:
    def answer(packet: mqtt5.PublishPacket) -> mqtt5.PubAckReasonCode:
        return reason if b"poison" in packet.payload else OK

    async with odd_broker(answer=answer) as broker, running(tmp_path, broker.port, "dev") as one:
        await put(one, "speed", {"v": "poison"})
        await put(one, "speed", {"v": "good"})
        await drained(one)
        assert one.uplink.refused.quarantined == 1
        await broker.until(
            lambda: any(b'"gap"' in packet.payload for packet in broker.ups("speed"))
        )
        payloads = [packet.payload for packet in broker.ups("speed")]
        assert sum(b"poison" in payload for payload in payloads) == 1
        assert any(b"good" in payload for payload in payloads)
    assert b"poison" in next((tmp_path / "quarantine").iterdir()).read_bytes()


async def test_a_quota_of_the_broker_makes_the_stream_wait_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    refused = 0

    def answer(packet: mqtt5.PublishPacket) -> mqtt5.PubAckReasonCode:
        nonlocal refused
        if packet.topic.endswith("/up/speed") and refused < 2:
            refused += 1
            return mqtt5.PubAckReasonCode.QUOTA_EXCEEDED
        return OK

    async with (
        odd_broker(answer=answer) as broker,
        running(tmp_path, broker.port, "dev", ack_timeout_s=0.2, ack_timeout_max_s=0.2) as one,
    ):
        await one.put(range(3))
        await drained(one)
        assert refused == 2, "the fault did not fire"
        assert one.uplink.refused.quarantined == 0
        assert len({foreign_frame.opened(packet).body for packet in broker.ups("speed")}) <= 2


async def test_a_full_quarantine_drops_its_oldest(tmp_path: Path) -> None:
    from edgewake.edge.log.keeping.work import FrameKey, OutFrame
    from edgewake.edge.uplink.quarantine import Quarantine

    quarantine = Quarantine(tmp_path, bytes_max=2_500)
    for n in range(1, 5):
        quarantine.keep(
            OutFrame(FrameKey("s", 1, n), b"x" * 800, "type", 1, None), why="test", now_ms=n
        )
        os.utime(tmp_path / "quarantine" / f"s.1.{n}", (n, n))
    assert sorted(path.name for path in (tmp_path / "quarantine").iterdir()) == ["s.1.3", "s.1.4"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "quarantine").iterdir()} == {0o600}
