"""Encrypted advertisements of Bluetooth sensors, opened with each sensor's key (AES-CCM).

BTHome version 2 (https://bthome.io/encryption) and Xiaomi's MiBeacon, versions 4 and 5. What comes
out is an advertisement of the same format that is not encrypted. Both count their advertisements:
one that is heard again says nothing new, and one with a number that was passed already is a replay.
Only where a source has keys is this imported, and `cryptography` with it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from edgewake.edge.sources.machines.beacons import (
    BTHOME,
    MI_ENCRYPTED,
    MI_HAS_MAC,
    MI_HAS_OBJECT,
    XIAOMI,
    mi_objects_at,
)
from edgewake.protocol.errors import Rejected, RejectReason

TAG_BYTES: Final = 4
"""The message integrity check at the end; both formats have it so."""
COUNTER_BYTES: Final = 4
BTHOME_UUID: Final = b"\xd2\xfc"
BTHOME_ENCRYPTED: Final = 0x01
MI_VERSION_MIN: Final = 4
"""Versions before it encrypt without a check of who sent it."""
MI_ASSOCIATED: Final = b"\x11"
STARTS_OVER_BELOW: Final = 100
"""Numbers below it are taken after any other one: a sensor counts from 0 when it gets a new
battery. It is what Home Assistant does."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted advertisement."""

    head: bytes
    """What comes before the values in one that is not encrypted."""
    text: bytes
    """The encrypted values and the check."""
    nonce: bytes
    counter: int
    associated: bytes | None = None


def sealed_bthome(data: bytes, address: bytes) -> Sealed | None:
    """None: it is not encrypted. Raises ValueError where it is too short."""
    if data[0] >> 5 != 2 or not data[0] & BTHOME_ENCRYPTED:
        return None
    if len(data) <= 1 + COUNTER_BYTES + TAG_BYTES:
        raise ValueError(f"{len(data)} bytes")
    counter, tag = data[-COUNTER_BYTES - TAG_BYTES : -TAG_BYTES], data[-TAG_BYTES:]
    return Sealed(
        head=bytes((data[0] & ~BTHOME_ENCRYPTED,)),
        text=data[1 : -COUNTER_BYTES - TAG_BYTES] + tag,
        nonce=address + BTHOME_UUID + data[:1] + counter,
        counter=int.from_bytes(counter, "little"),
    )


def sealed_mibeacon(data: bytes, address: bytes) -> Sealed | None:
    """None: it is not encrypted. Raises ValueError or struct.error where it cannot be read."""
    control, _, number = struct.unpack("<HHB", data[:5])
    if not control & MI_ENCRYPTED:
        return None
    if control >> 12 < MI_VERSION_MIN:
        raise ValueError(f"version {control >> 12} of MiBeacon")
    at = mi_objects_at(data, control)
    high, tag = data[-3 - TAG_BYTES : -TAG_BYTES], data[-TAG_BYTES:]
    if len(data) <= at + len(high) + TAG_BYTES:
        raise ValueError(f"{len(data)} bytes")
    reversed_address = data[5:11] if control & MI_HAS_MAC else address[::-1]
    return Sealed(
        head=struct.pack("<H", control & ~MI_ENCRYPTED) + data[2:at],
        text=data[at : -3 - TAG_BYTES] + tag,
        nonce=reversed_address + data[2:5] + high,
        # The frame's number is the lowest byte of a number of four.
        counter=number | int.from_bytes(high, "little") << 8,
        associated=MI_ASSOCIATED,
    )


class BeaconKeys:
    """Opens what sensors with keys advertise. It remembers the last number of each."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """`keys`: address in upper case → 32 hexadecimal digits."""
        self._ciphers = {
            address: AESCCM(bytes.fromhex(one), tag_length=TAG_BYTES)
            for address, one in keys.items()
        }
        self._counters: dict[str, int] = {}
        self._refused: dict[str, bytes] = {}
        """The last advertisement of a sensor that was refused: it is repeated, and counted once."""

    def has(self, address: str) -> bool:
        """Is there a key of this sensor?"""
        return address in self._ciphers

    def opened(self, address: str, services: Mapping[str, bytes]) -> dict[str, bytes]:
        """What a sensor with a key says, by service; nothing: no news. Raises Rejected."""
        for service, read in ((BTHOME, sealed_bthome), (XIAOMI, sealed_mibeacon)):
            data = services.get(service)
            if not data or self._refused.get(address) == data:
                continue
            try:
                sealed = read(data, bytes.fromhex(address.replace(":", "")))
                if sealed is not None:
                    return self._open(address, service, sealed)
                if _says_something(service, data):
                    raise Rejected(RejectReason.ENCODING, "not encrypted, though it has a key")
            except (ValueError, struct.error, IndexError) as error:
                self._refused[address] = data
                raise Rejected(RejectReason.ENCODING, f"cannot be read: {error}") from error
            except Rejected:
                self._refused[address] = data
                raise
        return {}

    def _open(self, address: str, service: str, sealed: Sealed) -> dict[str, bytes]:
        last = self._counters.get(address, -1)
        if sealed.counter == last:
            return {}
        try:
            values = self._ciphers[address].decrypt(sealed.nonce, sealed.text, sealed.associated)
        except InvalidTag as error:
            raise Rejected(
                RejectReason.ENCODING, "its key (`keys`) does not open what it says"
            ) from error
        if STARTS_OVER_BELOW <= sealed.counter < last:
            raise Rejected(
                RejectReason.FOREIGN_DEVICE,
                "its number was passed before: somebody sends again what it said",
            )
        self._counters[address] = sealed.counter
        return {service: sealed.head + values}


def _says_something(service: str, data: bytes) -> bool:
    """Are there values in what is not encrypted? Xiaomi's sensors also say who they are so."""
    return service == BTHOME or bool(int.from_bytes(data[:2], "little") & MI_HAS_OBJECT)
