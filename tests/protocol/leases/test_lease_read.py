"""Reports that a client reads with its lease."""

from __future__ import annotations

import pytest

from edgewake.protocol.leases.lease_read import LeaseRead, decode, encode, hash_token, parse_name


@pytest.mark.parametrize(
    "read", [LeaseRead("h", 5), LeaseRead("h", 5, ("heat", "speed"), "v2.x")], ids=["bare", "full"]
)
def test_a_report_is_read_as_it_was_written(read: LeaseRead) -> None:
    assert decode(encode(read)) == read


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b'{"token_hash":"h","at":"x"}'])
def test_what_is_no_report_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(record)


def test_a_client_names_its_lease_and_proves_it_by_its_token() -> None:
    lease, token = "0a" * 12, "1b" * 24
    assert parse_name(f" {lease}.{token}\n") == (lease, hash_token(token))
    assert [parse_name(one) for one in ("", f"{lease}.", f"{lease}.{token}0", "X" * 73)] == [
        None
    ] * 4
