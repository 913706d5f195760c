"""Claim codes: so many devices, so long, by a prefix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewake.cloud.ops.credentials import claims
from edgewake.cloud.ops.credentials.claims import Unclaimed
from edgewake.cloud.ops.credentials.desk import (
    CredentialDesk,
    Taken,
    TooMany,
)
from edgewake.protocol.clock import FakeClock

PASSWORDS = "passwords"


def desk(folder: Path, clock: FakeClock | None = None) -> CredentialDesk:
    return CredentialDesk(folder / "credentials" / PASSWORDS, clock or FakeClock(), os.urandom)


def test_a_code_gives_so_many_devices_so_long_and_by_its_prefix(tmp_path: Path) -> None:
    clock = FakeClock()
    made = desk(tmp_path, clock)
    code, _ = made.offer(count=2, life_s=60, prefix="shed-")
    for wrong in ("", "AAAA", code[:-1], code + "A"):
        with pytest.raises(Unclaimed):
            made.enrol(wrong, "shed-1", lambda _: False)
    with pytest.raises(Unclaimed, match="names that begin with 'shed-'"):
        made.enrol(code, "barn-1", lambda _: False)
    with pytest.raises(Taken):
        made.enrol(code, "shed-0", lambda name: name == "shed-0")
    made.enrol(code, "shed-1", lambda _: False)
    with pytest.raises(Taken):  # nobody takes over a name by a code
        made.enrol(code, "shed-1", lambda _: False)
    made.enrol(code, "shed-2", lambda _: False)
    with pytest.raises(Unclaimed):
        made.enrol(code, "shed-3", lambda _: False)
    late, _ = made.offer(count=1, life_s=60)
    clock.advance(61)
    with pytest.raises(Unclaimed):
        made.enrol(late, "x", lambda _: False)


def test_codes_are_listed_without_what_they_are_and_taken_back(tmp_path: Path) -> None:
    clock = FakeClock()
    made = desk(tmp_path, clock)
    late, late_claim = made.offer(count=3, life_s=120, prefix="barn-")
    soon, soon_claim = made.offer(count=2, life_s=60)
    made.enrol(late, "barn-1", lambda _: False)
    assert [(one.id, one.left, one.prefix) for one in made.claims] == [
        (soon_claim.id, 2, ""),
        (late_claim.id, 2, "barn-"),
    ]
    assert soon.replace("-", "").lower() not in soon_claim.id
    assert not made.withdraw("0" * 12)
    assert made.withdraw(soon_claim.id)
    assert not made.withdraw(soon_claim.id)
    for one in (made, desk(tmp_path, clock)):  # also after a restart
        with pytest.raises(Unclaimed):
            one.enrol(soon, "shed-1", lambda _: False)
    assert made.enrol(late, "barn-2", lambda _: False).device == "barn-2"
    assert "barn-1" in made.devices
    clock.advance(121)
    assert made.claims == []
    assert not made.withdraw(late_claim.id)


def test_codes_that_are_not_used_are_bounded(tmp_path: Path) -> None:
    clock = FakeClock()
    made = desk(tmp_path, clock)
    for _ in range(claims.CLAIMS_MAX):
        made.offer(count=1, life_s=60)
    with pytest.raises(TooMany):
        made.offer(count=1, life_s=60)
    clock.advance(61)
    made.offer(count=1, life_s=60)
