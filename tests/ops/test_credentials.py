"""Passwords of devices and claim codes: what is kept, what is given, and to whom not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from edgewake.cloud.ops.credentials import claims, passwords
from edgewake.cloud.ops.credentials.claims import Unclaimed
from edgewake.cloud.ops.credentials.desk import CLAIMS, CredentialDesk, Taken, TooMany
from edgewake.cloud.ops.credentials.passwords import BadName
from edgewake.protocol.clock import FakeClock

PASSWORDS = "passwords"


def desk(folder: Path, clock: FakeClock | None = None) -> CredentialDesk:
    return CredentialDesk(folder / "credentials" / PASSWORDS, clock or FakeClock(), os.urandom)


def entries(folder: Path) -> dict[str, str]:
    return passwords.parse((folder / "credentials" / PASSWORDS).read_text())


def test_what_is_kept_is_a_hash_that_mosquitto_knows(tmp_path: Path) -> None:
    (given,) = desk(tmp_path).add(["boiler"])
    said = entries(tmp_path)["boiler"]
    assert passwords.is_of(given.password, said)
    assert not passwords.is_of(given.password + "x", said)
    text = (tmp_path / "credentials" / PASSWORDS).read_text()
    assert given.password not in text
    # A salt of mosquitto_passwd's own: what it makes, ours reads.
    file = tmp_path / "theirs"
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", str(file), "boiler", given.password], check=True
    )
    assert passwords.is_of(given.password, passwords.parse(file.read_text())["boiler"])


def test_files_are_of_their_owner_only_and_survive_a_restart(tmp_path: Path) -> None:
    first = desk(tmp_path)
    first.add(["a", "b"])
    code, _ = first.offer(count=2, life_s=60)
    for name in (PASSWORDS, CLAIMS):
        assert (tmp_path / "credentials" / name).stat().st_mode & 0o777 == 0o600
    assert code not in (tmp_path / "credentials" / CLAIMS).read_text()
    again = desk(tmp_path)
    assert again.devices == ["a", "b"]
    assert again.enrol(code.lower().replace("-", " "), "c", lambda _: False).device == "c"


def test_of_several_names_all_are_given_or_none(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.add(["a"])
    before = entries(tmp_path)
    with pytest.raises(Taken, match="a: has a password already"):
        made.add(["b", "a"])
    with pytest.raises(BadName):
        made.add(["b", "not legal"])
    assert entries(tmp_path) == before
    (new,) = made.add(["a"], replace=True)
    assert passwords.is_of(new.password, entries(tmp_path)["a"])
    assert entries(tmp_path) != before


@pytest.mark.parametrize("name", ["bridge-1", "bridge", "supervisor-probe", "", "a b", "x" * 65])
def test_nobody_is_called_as_a_part_of_the_system(tmp_path: Path, name: str) -> None:
    made = desk(tmp_path)
    with pytest.raises(BadName):
        made.add([name])
    code, _ = made.offer(count=1, life_s=60)
    with pytest.raises(BadName):
        made.enrol(code, name, lambda _: False)


def test_a_revoked_password_is_gone_for_good(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.add(["a", "b"])
    assert made.revoke("a")
    assert not made.revoke("a")
    assert list(entries(tmp_path)) == ["b"]


def test_a_code_gives_so_many_devices_so_long_and_by_its_prefix(tmp_path: Path) -> None:
    clock = FakeClock()
    made = desk(tmp_path, clock)
    code, _ = made.offer(count=2, life_s=60, prefix="shed-")
    for wrong in ("", "AAAA", code[:-1], code + "A"):
        with pytest.raises(Unclaimed):
            made.enrol(wrong, "shed-1", lambda _: False)
    with pytest.raises(Unclaimed, match="names begin with 'shed-'"):
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


def test_codes_that_are_not_used_are_bounded(tmp_path: Path) -> None:
    clock = FakeClock()
    made = desk(tmp_path, clock)
    for _ in range(claims.CLAIMS_MAX):
        made.offer(count=1, life_s=60)
    with pytest.raises(TooMany):
        made.offer(count=1, life_s=60)
    clock.advance(61)
    made.offer(count=1, life_s=60)
