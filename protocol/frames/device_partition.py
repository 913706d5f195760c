"""Computes the partition of `ew.up` that a device is on: Kafka's murmur2 of the key.

It is for parts that must know it without sending there.
"""

from __future__ import annotations

from typing import Final

from edgewake.protocol import topics

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_32_BITS: Final = 0xFFFFFFFF


def up_partition(device: str) -> int:
    """The partition of `ew.up` that holds this device's records."""
    return (murmur2(device.encode()) & 0x7FFFFFFF) % topics.UP_PARTITIONS


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a key, unsigned."""
    value = (_SEED ^ len(data)) & _32_BITS
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        word = int.from_bytes(data[i : i + 4], "little") * _FACTOR & _32_BITS
        word = (word ^ word >> 24) * _FACTOR & _32_BITS
        value = value * _FACTOR & _32_BITS ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _32_BITS
    value = (value ^ value >> 13) * _FACTOR & _32_BITS
    return value ^ value >> 15
