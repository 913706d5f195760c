"""Deliveries and their letters as they are stored."""

from __future__ import annotations

import orjson
import pytest

from edgewake.protocol.leases.delivery_record import (
    Delivery,
    DeliveryState,
    Letter,
    Pending,
    decode_delivery,
    decode_letter,
    encode,
)

DELIVERY = Delivery(
    id="d1", owner="o", name="n", streams=("speed", "heat"), cursor="v2.x", endpoint_host="h",
    sealed="s", state=DeliveryState.ENDED, why="gone", pending=Pending(3, "v2.y", 5),
    created_at=1, changed_at=2,
)  # fmt: skip
LETTER = Letter("d1", 7, '{"t":1}', "v2.y", "410", 9)


def test_rows_are_read_as_they_were_written_and_what_is_newer_is_passed_over() -> None:
    delivery, letter = (
        orjson.dumps(orjson.loads(encode(row)) | {"of_a_later_version": 1})
        for row in (DELIVERY, LETTER)
    )
    assert (decode_delivery(delivery), decode_letter(letter)) == (DELIVERY, LETTER)


def test_a_letter_lies_beside_its_delivery_under_its_number() -> None:
    assert (DELIVERY.key, LETTER.key) == ("delivery|d1", "letter|d1|7")


@pytest.mark.parametrize("record", [b"", b"[]", b"{}", b'{"id":1}'])
def test_what_is_no_row_is_refused(record: bytes) -> None:
    for decode in (decode_delivery, decode_letter):
        with pytest.raises(ValueError):  # noqa: PT011
            decode(record)
