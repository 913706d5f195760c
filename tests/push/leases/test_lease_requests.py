"""What a client's POST makes of a lease's name, and when it is the same request."""

from __future__ import annotations

from dataclasses import replace

from edgewake.cloud.push.leases.lease_requests import ID_BYTES, hash_of, id_of_key, new_id
from edgewake.cloud.rights.principal import ANYBODY, Kind, Proof
from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.lease import LeaseRequest


def request(stream: str = "s") -> LeaseRequest:
    return LeaseRequest.model_validate(
        {
            "subscription": {"streams": [stream]},
            "cursor": "v2.x",
            "endpoint": {"type": "webhook", "url": "https://example.org/wake"},
        }
    )


def test_a_repeated_request_is_known_on_every_proxy_and_another_reader_s_is_another() -> None:
    anna = replace(ANYBODY, name="anna", proof=Proof(Kind.KEY, b"", key="anna"))
    ben = replace(anna, name="ben")
    found = [
        hash_of(request(), ANYBODY),
        hash_of(request("t"), ANYBODY),
        hash_of(request(), anna),
        hash_of(request(), ben),
    ]
    assert len(set(found)) == 4
    assert hash_of(request(), anna) == found[2]


class LaterChosen(Chosen):
    """What is chosen, as a later version may know it."""

    tags: tuple[str, ...] | None = None


class LaterRequest(LeaseRequest):
    """A request as a later version may read it."""

    subscription: LaterChosen
    priority: int = 5


def test_a_request_repeated_after_an_update_is_the_same() -> None:
    """It was refused (409), though its lease was there: its client never had the token of it."""
    told = request().model_dump(mode="json", exclude_unset=True)
    later = [LaterRequest.model_validate(told | more) for more in ({}, {"priority": 6})]
    assert [hash_of(one, ANYBODY) == hash_of(request(), ANYBODY) for one in later] == [True, False]


def test_endpoints_of_two_types_are_two_requests() -> None:
    told = request().model_dump(mode="json", exclude_unset=True)
    relay = LeaseRequest.model_validate(told | {"endpoint": {"type": "relay"}})
    hook = LeaseRequest.model_validate(told | {"endpoint": {"url": "https://example.org/wake"}})
    assert hash_of(hook, ANYBODY) == hash_of(request(), ANYBODY) != hash_of(relay, ANYBODY)


def test_a_key_of_a_client_stands_for_one_lease() -> None:
    assert id_of_key("k") == id_of_key("k") != id_of_key("k2")
    assert len(id_of_key("k")) == len(new_id(bytes)) == 2 * ID_BYTES
