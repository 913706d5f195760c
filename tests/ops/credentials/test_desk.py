"""Passwords of devices and claim codes: what is kept, what is given, and to whom not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from edgewake.cloud import passwords
from edgewake.cloud.ops.credentials.claims import Unclaimed
from edgewake.cloud.ops.credentials.desk import (
    CLAIMS,
    REVOKED,
    CredentialDesk,
    NoAuthority,
    Taken,
)
from edgewake.cloud.passwords import BadName
from edgewake.deploy import authority
from edgewake.deploy.authority import AuthorityFiles
from edgewake.protocol.certificates import authority as authorities
from edgewake.protocol.certificates.authority import BadRequest
from edgewake.protocol.certificates.book import FILE
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError, LocalError

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


def signing_desk(folder: Path) -> CredentialDesk:
    files = AuthorityFiles(folder / "authority")
    clock = FakeClock()
    if not files.key.exists():
        authority.prepare(files, "192.0.2.7", now_ms=clock.now_ms())
    return CredentialDesk(folder / "credentials" / PASSWORDS, clock, os.urandom, files.folder)


def request(name: str = "x") -> str:
    return authorities.request(authorities.new_key(), name)


def revoked(folder: Path) -> int:
    return authorities.number_of((folder / "authority" / REVOKED).read_text())


def test_a_device_has_a_password_or_a_certificate_and_a_new_one_ends_the_old_one(
    tmp_path: Path,
) -> None:
    made = signing_desk(tmp_path)
    made.add(["a"])
    with pytest.raises(Taken, match="a: has a password already"):
        made.sign({"b": request(), "a": request()})
    assert made.certificates == {}
    made.sign({"a": request()}, replace=True)
    assert (made.devices, list(made.certificates), entries(tmp_path)) == ([], ["a"], {})
    with pytest.raises(Taken, match="a: has a certificate already"):
        made.add(["a"])
    with pytest.raises(Taken):
        made.sign({"a": request()})
    assert revoked(tmp_path) == 0
    made.sign({"a": request()}, replace=True)
    assert revoked(tmp_path) == 1
    made.add(["a"], replace=True)
    assert (revoked(tmp_path), made.certificates, made.devices) == (2, {}, ["a"])
    again = signing_desk(tmp_path)
    assert (again.certificates, again.devices) == ({}, ["a"])


def test_of_several_requests_all_are_signed_or_none(tmp_path: Path) -> None:
    made = signing_desk(tmp_path)
    with pytest.raises(BadRequest):
        made.sign({"a": request(), "b": "x"})
    with pytest.raises(BadName):
        made.sign({"a": request(), "bridge-1": request()})
    assert made.certificates == {}
    with pytest.raises(NoAuthority):
        desk(tmp_path / "other").sign({"a": request()})


def test_by_a_code_a_device_is_given_what_it_asks_for_and_a_bad_request_costs_nothing(
    tmp_path: Path,
) -> None:
    made = signing_desk(tmp_path)
    code, _ = made.offer(count=1, life_s=60)
    with pytest.raises(BadRequest):
        made.enrol(code, "shed", lambda _: False, "x")
    given = made.enrol(code, "shed", lambda _: False, request())
    assert given.certificate.startswith("-----BEGIN CERTIFICATE-----")
    assert not given.password
    with pytest.raises(Unclaimed):
        made.enrol(code, "hut", lambda _: False, request())


def test_what_was_taken_back_is_told_after_a_crash_between_book_and_list(tmp_path: Path) -> None:
    made = signing_desk(tmp_path)
    made.sign({"a": request()})
    before = (tmp_path / "authority" / REVOKED).read_bytes()
    assert made.revoke("a")
    assert not made.revoke("a")
    (tmp_path / "authority" / REVOKED).write_bytes(before)
    assert revoked(tmp_path) == 0
    signing_desk(tmp_path)
    assert revoked(tmp_path) == 1


def test_a_book_that_is_older_than_the_list_makes_nothing_good_again(tmp_path: Path) -> None:
    made = signing_desk(tmp_path)
    made.sign({"a": request()})
    old = (tmp_path / "credentials" / FILE).read_bytes()
    made.revoke("a")
    for before in (old, b""):
        (tmp_path / "credentials" / FILE).write_bytes(before)
        with pytest.raises(ConfigError, match="lists fewer revocations than"):
            signing_desk(tmp_path)


def test_another_address_gives_another_certificate_of_the_same_authority(tmp_path: Path) -> None:
    files, now = AuthorityFiles(tmp_path / "authority"), FakeClock().now_ms()
    first = authority.prepare(files, "192.0.2.7", now_ms=now).pem
    shown = files.server_certificate.read_text()
    assert authority.prepare(files, "192.0.2.7", now_ms=now).pem == first
    assert files.server_certificate.read_text() == shown
    assert authority.prepare(files, "192.0.2.8", now_ms=now).pem == first
    assert files.server_certificate.read_text() != shown
    assert {one.stat().st_mode & 0o777 for one in files.folder.iterdir()} == {0o600}
    files.key.unlink()
    with pytest.raises(LocalError, match="do not belong together"):
        authority.prepare(files, "192.0.2.8", now_ms=now)
