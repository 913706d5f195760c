"""Leases as they are stored."""

from __future__ import annotations

import orjson
import pytest

from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.lease import WakePolicy
from edgewake.protocol.leases.lease_record import (
    PARTITIONS,
    RELAY_HOST,
    Lease,
    LeaseState,
    PendingWake,
    decode,
    encode,
    partition_of,
)

LEASE = Lease(
    id="a" * 24, token_hash="h", request_hash="r", streams=("speed",), where="x > 1",
    cursor="v2.x", endpoint_host="example", sealed="s", kind=EndpointKind.WEBHOOK,
    wake=WakePolicy(min_events=7), ttl_s=60, created_at=1, expires_at=2, state=LeaseState.CALLING,
    pending=PendingWake(3, "{}", 4), right='{"a":1}',
)  # fmt: skip


def test_a_lease_is_read_as_it_was_written_and_what_is_newer_is_passed_over() -> None:
    newer = orjson.dumps(orjson.loads(encode(LEASE)) | {"of_a_later_version": 1})
    assert decode(newer) == LEASE


def test_leases_of_one_client_share_what_is_the_same() -> None:
    one, other = decode(encode(LEASE)), decode(encode(LEASE.but(id="b" * 24)))
    assert one.wake is other.wake
    assert one.streams is other.streams
    assert one.right is other.right


@pytest.mark.parametrize("record", [b"", b"[]", b"{}", b"null", b'{"streams":1}'])
def test_what_is_no_lease_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(record)


def test_a_relay_has_no_host() -> None:
    assert (LEASE.is_relay, LEASE.but(endpoint_host=RELAY_HOST).is_relay) == (False, True)


def test_ids_are_spread_over_the_partitions_for_ever_in_the_same_way() -> None:
    assert {partition_of(f"{number:024x}") for number in range(100)} == set(range(PARTITIONS))
    assert [partition_of(one * 24) for one in "abc"] == [
        LEASE.but(id=one * 24).partition for one in "abc"
    ]
