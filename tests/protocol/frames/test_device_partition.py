from __future__ import annotations

import pytest

from edgewake.protocol.frames.device_partition import murmur2, up_partition


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafka(text: str, signed: int) -> None:
    """The vectors of Kafka's own client tests."""
    assert murmur2(text.encode()) == signed & 0xFFFFFFFF


def test_a_device_is_on_one_of_64_partitions() -> None:
    assert {up_partition(f"car-{i}") for i in range(2000)} == set(range(64))
