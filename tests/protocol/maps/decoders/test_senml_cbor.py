"""SenML in CBOR: labels are small integers, and all else is as in JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cbor2
import pytest

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.decoders import senml, senml_cbor

NOW_MS = 1_790_000_000_000


def test_a_pack_gives_what_its_json_gives() -> None:
    records = [{-2: "urn:a/", -3: 1_790_000_000, 0: "x", 1: "Cel", 2: 21.5}, {0: "on", 4: True}]
    named = [{"bn": "urn:a/", "bt": 1_790_000_000, "n": "x", "u": "Cel", "v": 21.5},
             {"n": "on", "vb": True}]  # fmt: skip
    assert senml_cbor.readings(cbor2.dumps(records), NOW_MS) == senml.of_pack(named, NOW_MS)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"\x82\x01", cbor2.dumps([{0: "x", 2: Fraction(1, 3)}]), b"\x81" * 1000],
    ids=["empty", "break", "cut", "rational", "deep"],
)
def test_what_is_no_cbor_of_senml_is_refused(payload: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        senml_cbor.readings(payload, NOW_MS)
    assert refused.value.reason is RejectReason.ENCODING


@pytest.mark.parametrize("value", ["21.5", [1], None, True])
def test_a_value_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(Rejected):
        senml_cbor.readings(cbor2.dumps([{0: "x", 2: value}]), NOW_MS)
