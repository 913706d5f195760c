"""The queue of what may be lost. Pure."""

from __future__ import annotations

from edgewake.edge.mqtt_link import TooLarge
from edgewake.edge.uplink.one_way import OneWay


def sent(queue: OneWay) -> list[bytes]:
    found: list[bytes] = []
    queue.send(lambda: True, lambda _stream, payload: found.append(payload))
    return found


def test_large_readings_fill_its_bytes_and_not_the_memory() -> None:
    queue = OneWay(1_000, bytes_max=10_000)
    queue.add("s", [(n, {"text": "x" * 1_000}) for n in range(100)])
    assert (len(queue), queue.dropped) == (9, 91)
    assert [payload[:7] for payload in sent(queue)] == [b'{"t":%d' % n for n in range(91, 100)]
    queue.add("s", [(0, {"n": 0})] * 500)
    assert (len(queue), queue.dropped) == (500, 91), "what was sent has left room"


def test_the_latest_always_has_room() -> None:
    queue = OneWay(1_000, bytes_max=100)
    queue.add("s", [(1, {"n": 1}), (2, {"text": "x" * 1_000})])
    assert (len(queue), queue.dropped) == (1, 1)


def test_what_is_lost_is_said_once_by_stream_and_reason() -> None:
    queue = OneWay(2, bytes_max=10_000)
    queue.add("a", [(n, {"n": n}) for n in range(5)])
    queue.add("b", [(0, {"n": 0})])
    queue.lose("b", 7, "refused")

    def publish(_stream: str, _payload: bytes) -> None:
        raise TooLarge

    queue.send(lambda: True, publish)
    assert queue.take_unsaid() == {
        ("a", "one_way_queue"): 4,
        ("a", "oversize"): 1,
        ("b", "refused"): 7,
        ("b", "oversize"): 1,
    }
    assert queue.take_unsaid() == {}
