"""The authority of an installation: made once, and its server's certificate again where need be."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.deploy.authority import AHEAD_MS, AuthorityFiles, prepare, read
from edgewake.protocol.certificates.authority import number_of
from edgewake.protocol.errors import LocalError

NOW_MS = 1_790_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> AuthorityFiles:
    return AuthorityFiles(tmp_path / "authority")


def texts(files: AuthorityFiles) -> dict[str, str]:
    return {path.name: path.read_text() for path in files.folder.iterdir()}


def test_what_was_made_is_used_at_the_next_start(files: AuthorityFiles) -> None:
    made = prepare(files, "192.168.1.5", now_ms=NOW_MS)
    before = texts(files)
    assert set(before) == {"ca.crt", "ca.key", "server.crt", "server.key", "revoked.pem"}
    assert number_of(before["revoked.pem"]) == 0
    assert prepare(files, "192.168.1.5", now_ms=NOW_MS + 1).fingerprint == made.fingerprint
    assert texts(files) == before
    assert read(files).fingerprint == made.fingerprint


def test_another_address_or_the_end_ahead_makes_the_servers_certificate_again_and_no_other(
    files: AuthorityFiles,
) -> None:
    prepare(files, "192.168.1.5", now_ms=NOW_MS)
    before = texts(files)
    prepare(files, "192.168.1.6", now_ms=NOW_MS)
    moved = texts(files)
    prepare(files, "192.168.1.6", now_ms=NOW_MS + 10 * AHEAD_MS)
    later = texts(files)
    assert len({one["server.crt"] for one in (before, moved, later)}) == 3
    assert {**before, "server.crt": ""} == {**later, "server.crt": ""}


def test_a_key_that_cannot_be_read_is_said_and_nothing_is_made_anew(files: AuthorityFiles) -> None:
    prepare(files, "192.168.1.5", now_ms=NOW_MS)
    files.key.write_text("no key")
    before = texts(files)
    with pytest.raises(LocalError, match="restore it from a copy"):
        prepare(files, "192.168.1.5", now_ms=NOW_MS)
    assert texts(files) == before
