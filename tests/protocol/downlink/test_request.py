"""What a device may ask the cloud for."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.protocol.downlink.downlink import EXPIRES_S_MAX
from edgewake.protocol.downlink.request import EXPIRES_S, Request, check_request, request_of
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.plain_json import Misshapen


def test_a_request_is_read_from_a_reading_with_other_fields_beside_it() -> None:
    fields = {"id": "r-1", "name": "route", "expires_s": 60.0, "body": None, "speed": 3}
    assert request_of(fields) == Request(id="r-1", name="route", body="", expires_s=60)
    assert request_of({"id": "r-1", "name": "route"}).expires_s == EXPIRES_S


@pytest.mark.parametrize(
    "wrong",
    [{"id": "r 1"}, {"id": None}, {"name": "1x"}, {"expires_s": 0}, {"expires_s": 1.5},
     {"expires_s": EXPIRES_S_MAX + 1}, {"body": 7}],
)  # fmt: skip
def test_what_is_no_request_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misshapen):
        request_of({"id": "r-1", "name": "route"} | wrong)


@pytest.mark.parametrize("name", ["speed", "wrong"])
def test_a_device_sends_no_other_field_with_a_request(name: str) -> None:
    check_request({"id": "r-1", "name": "route"})
    with pytest.raises(Rejected, match=f"'{name}' is not a field of a request") as refused:
        check_request({"id": "r-1", "name": "route", name: "x"})
    assert refused.value.reason is RejectReason.SHAPE
