"""Decodes SenML in CBOR (RFC 8428, section 6): `payload = "senml-cbor"`. Pure.

Labels are small integers and data are bytes; all else is as in JSON. Needs `cbor2`, which
the extra `formats` installs.
"""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import cbor2

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.decoders import senml
from edgewake.protocol.maps.rule import Map

LABELS: Final = {
    -1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip
"""RFC 8428, table 4."""
INTEGER_BITS: Final = 64
"""An integer with more bits becomes a float, as in JSON."""

DEPTH_MAX: Final = 16
"""The deepest nesting; a pack is a list of maps of scalars."""


def _refuse(*_: Any) -> Any:
    raise ValueError("a tag that SenML does not allow")


_REFUSING: Final = dict.fromkeys((28, 29, 30, 35, 36), _refuse)
"""Tags of shared values, rationals, patterns and MIME, which are refused: reducing a rational of a
megabyte to lowest terms would block the whole process for most of a minute."""


def decode(payload: bytes, _of: Map, now_ms: int) -> list[Any]:
    """Decodes a payload for maps. Raises Rejected."""
    return readings(payload, now_ms)


def readings(payload: bytes, now_ms: int) -> list[dict[str, Any]]:
    """Decodes a pack that came at `now_ms` to readings. Raises Rejected."""
    try:
        pack = cbor2.loads(payload, semantic_decoders=_REFUSING, max_depth=DEPTH_MAX)
    except Exception as error:  # of values inside too: dates, big numbers, patterns
        raise Rejected(RejectReason.ENCODING, f"not CBOR: {str(error)[:200]}") from error
    if type(pack) is list:
        pack = [_named(one) if isinstance(one, dict) else one for one in pack]
    return senml.of_pack(pack, now_ms)


def _named(record: dict[Any, Any]) -> dict[str, Any]:
    return {str(LABELS.get(label, label)): _plain(value) for label, value in record.items()}


def _plain(value: Any) -> Any:
    """Converts a CBOR value to the one that JSON would have."""
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
    is_big = type(value) is int and value.bit_length() >= INTEGER_BITS
    if is_big or isinstance(value, Decimal | Fraction):
        try:
            return float(value)
        except OverflowError:
            return None
    return value.timestamp() if isinstance(value, datetime) else value
