"""What a client may ask of a lease."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from edgewake.protocol.leases.lease import LeaseEndpoint, QuietHours, Relay, Webhook

ENDPOINT: TypeAdapter[Any] = TypeAdapter(LeaseEndpoint)


@pytest.mark.parametrize(
    ("told", "kind"),
    [({"type": "relay"}, Relay), ({"type": "webhook", "url": "https://a.example/w"}, Webhook),
     ({"url": "https://a.example/w"}, Webhook)],
)  # fmt: skip
def test_an_endpoint_without_a_type_is_a_webhook(told: dict[str, str], kind: type) -> None:
    assert type(ENDPOINT.validate_python(told)) is kind


def test_an_endpoint_of_another_type_is_said() -> None:
    with pytest.raises(ValidationError, match="expected an endpoint of type webhook or relay"):
        ENDPOINT.validate_python({"type": "pigeon"})


def test_quiet_hours_may_pass_midnight_and_have_an_end() -> None:
    night = QuietHours(start="22:00", end="07:00", timezone="Europe/Berlin")
    assert (night.start, night.end) == ("22:00", "07:00")
    with pytest.raises(ValidationError, match="expected a quiet time that ends"):
        QuietHours(start="22:00", end="22:00")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", ""])
def test_a_time_zone_that_nobody_knows_is_said(zone: str) -> None:
    with pytest.raises(ValidationError, match="expected a time zone such as Europe/Berlin"):
        QuietHours(start="22:00", end="07:00", timezone=zone)
